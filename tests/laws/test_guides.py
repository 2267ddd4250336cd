"""The worked examples of the guides: the catalogue finds each file, which gives the right rows and obeys law 1."""

import re
from pathlib import Path
from typing import Any

import pytest

from tests.beds.lab import Lab, cases
from tests.nightly_cases import nightly_except
from tests.views.examples import Example, Row, Sent, sent
from tests.views.ways import Ways
from truelog import View
from truelog.support.settings import PROJECT
from truelog.views import catalogue

FILE = re.compile(r"Write `spark_apps/views/(\w+)\.py`.*?```python\n(.*?)```", re.DOTALL)


def changed(verb: str, product: str = "lamp", **fields: Any) -> Sent:
    return sent("cart_event", cart_id="c1", visitor_id="ann", verb=verb, product=product, **fields)


def liked(target: str, person: str, verb: str = "liked") -> Sent:
    return sent("like", target_id=target, person_id=person, verb=verb)


def befriended(one: str, other: str) -> Sent:
    return sent("friendship", person_id=one, friend_id=other, verb="friended")


LAMP = [changed("added", quantity=1), changed("removed"), changed("added", quantity=2)]
LIKED = [befriended("ann", "bob"), befriended("eve", "ann"), liked("x1", "bob"), liked("x1", "eve"), liked("x2", "ann")]
GUIDES: dict[str, tuple[list[Sent], list[Row]]] = {
    "groups": (
        [*LAMP, changed("removed"), changed("added", quantity=1), changed("added", "rug", quantity=1)],
        [{"cart_id": "c1", "product": "lamp", "times": 2}],
    ),
    "joins": (
        [*LIKED, liked("x1", "bob"), liked("x2", "eve"), liked("x2", "eve", "unliked")],
        [
            {"target_id": "x1", "reader_id": "ann", "friends": 2},
            {"target_id": "x2", "reader_id": "bob", "friends": 1},
            {"target_id": "x2", "reader_id": "eve", "friends": 1},
        ],
    ),
}


@pytest.mark.parametrize("guide", nightly_except(["joins"], GUIDES))
def test_the_example_of_a_guide_is_right_and_obeys_the_first_law(lab: Lab, guide: str, tmp_path: Path) -> None:
    name, view = written(guide, tmp_path)
    events, rows = GUIDES[guide]
    example = Example(events)
    found = Ways(name, view, [example]).relations(lab, example)
    assert [found[way][None] for way in ("batch", "stream")] == [rows, rows]
    result = lab.compare_all(name, view, cases(lab.types, view.reads, number=50, longest=40))
    assert (result.rows > 10, result.unequal) == (True, 0)


def written(guide: str, folder: Path) -> tuple[str, View]:
    """The name and the view that the catalogue finds after the guide's file is written to a folder."""
    file = FILE.search((PROJECT / "docs" / f"{guide}.md").read_text())
    assert file is not None
    (folder / f"{file[1]}.py").write_text(file[2])
    [(name, view)] = catalogue.load_all_views(folder).items()
    return name, view
