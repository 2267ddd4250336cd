"""Earlier certificates are read unchanged, and the code of all views is the same as when they were recorded.

The files in `golden/` are certificates that `truelog reconcile --from-raw` made on a running platform.
`fingerprints.json` contains the version and the fingerprint of each view. A fingerprint that changes under the same
version makes every certificate of the view SUPERSEDED, and its stream refuses the table. Raise a view's `version` only
if its rows change, and record both here.
"""

import json
from pathlib import Path

import pytest

from tests.beds.lab import Lab
from truelog.log import records
from truelog.reconcile import certificate
from truelog.tables.compiler import compile_view
from truelog.views import catalogue

GOLDEN = sorted((Path(__file__).parent / "golden").glob("*.json"))
FINGERPRINTS = json.loads((Path(__file__).parent / "fingerprints.json").read_text())


def test_there_are_certificates() -> None:
    assert [path.stem for path in GOLDEN] == ["click_through", "page_audience", "page_views", "request_rates"]


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_an_earlier_certificate_is_read_and_written_unchanged(path: Path) -> None:
    content = path.read_bytes()
    assert certificate.read_certificate(content).as_bytes() == content
    assert json.loads(content)["format"] == certificate.FORMAT


@pytest.mark.parametrize("name", ["request_rates"])  # the others have a new version
def test_the_encoding_of_its_rows_is_the_same(name: str, lab: Lab) -> None:
    [path] = [each for each in GOLDEN if each.stem == name]
    earlier = certificate.read_certificate(path.read_bytes())
    schemas = {topic: records.schema(event_type) for topic, event_type in lab.types.items()}
    now = compile_view(lab.spark, earlier.view, catalogue.load_view(earlier.view), schemas)
    assert now.own.stored_columns == earlier.columns
    assert now.view.key == earlier.key


def test_the_code_of_every_view_is_the_same(lab: Lab) -> None:
    schemas = {topic: records.schema(event_type) for topic, event_type in lab.types.items()}
    views = catalogue.load_all_views()
    now = {name: compile_view(lab.spark, name, view, schemas).fingerprint for name, view in views.items()}
    assert {name: [views[name].version, now[name]] for name in views} == FINGERPRINTS
