"""Tests of the README's "Add a view in four steps".

The catalogue finds the file from step 1, and the view in that file returns rows and obeys the first law.
"""

import re
import textwrap
from pathlib import Path

import pytest

from tests.beds.lab import Lab, cases
from tests.views.examples import WAYS, Example, at, sent
from tests.views.ways import Ways
from truelog import View
from truelog.support.settings import PROJECT
from truelog.views import catalogue

STEP = re.compile(r"^1\. Write `spark_apps/views/(\w+)\.py`.*?```python\n(.*?)```", re.DOTALL | re.MULTILINE)


@pytest.fixture
def written(tmp_path: Path) -> tuple[str, View]:
    """The name and the view that the catalogue finds after the README's file is written to a folder."""
    step = STEP.search((PROJECT / "README.md").read_text())
    assert step is not None
    (tmp_path / f"{step[1]}.py").write_text(textwrap.dedent(step[2].lstrip("\n")))
    [(name, view)] = catalogue.load_all_views(tmp_path).items()
    return name, view


def test_the_view_gives_the_same_rows_in_every_way(lab: Lab, written: tuple[str, View]) -> None:
    hours, languages = ("10:00:00", "10:59:59", "11:00:00"), ("en", "en", None)
    events = [
        sent("page_view", occurred_at=at(hour), language=language, visitor_id="ann", url="https://shop.example/")
        for hour, language in zip(hours, languages, strict=True)
    ]
    example = Example(events)
    found = Ways(*written, [example]).relations(lab, example)
    rows = [
        {"hour": at("10:00:00"), "language": "en", "views": 2},
        {"hour": at("11:00:00"), "language": None, "views": 1},
    ]
    assert {way: found[way][None] for way in WAYS} == dict.fromkeys(WAYS, rows)


def test_the_view_obeys_the_first_law(lab: Lab, written: tuple[str, View]) -> None:
    name, view = written
    result = lab.compare_all(name, view, cases(lab.types, view.reads, number=50))
    assert (result.rows > 50, result.unequal) == (True, 0)
