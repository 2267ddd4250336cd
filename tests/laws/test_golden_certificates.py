"""Certificates from an earlier release still verify: they are read unchanged, and their views' code is the same.

The files in `golden/` are certificates that `truelog reconcile --from-raw` made on a running platform. A change that
fails these tests makes every existing certificate SUPERSEDED. Raise a view's `version` only if its rows change.
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


def test_every_view_of_the_first_release_has_a_certificate() -> None:
    assert [path.stem for path in GOLDEN] == ["click_through", "page_audience", "page_views", "request_rates"]


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_an_earlier_certificate_is_read_and_written_unchanged(path: Path) -> None:
    content = path.read_bytes()
    assert certificate.read_certificate(content).as_bytes() == content
    assert json.loads(content)["format"] == certificate.FORMAT


@pytest.mark.parametrize("name", ["request_rates"])  # the others have a new version
def test_the_code_of_its_view_is_the_same(name: str, lab: Lab) -> None:
    [path] = [each for each in GOLDEN if each.stem == name]
    earlier = certificate.read_certificate(path.read_bytes())
    schemas = {topic: records.schema(event_type) for topic, event_type in lab.types.items()}
    now = compile_view(lab.spark, earlier.view, catalogue.load_view(earlier.view), schemas)
    assert now.is_made_by(earlier.fingerprint)
    assert now.stored_columns == earlier.columns
    assert now.view.key == earlier.key
