"""The events behind a row, in order, and the row after each of them: told by hand, and compared with rebuilds."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from psycopg import sql
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from tests.laws.lab import Lab
from tests.library.archived import PER_URL, Archived, archived
from truelog import Distinct, Group, Join, Latest, Match, Sum, View, latest
from truelog.history import shown_rows
from truelog.history.explain import Page, explain
from truelog.history.explanation import Explanation, Verdict
from truelog.log.positions import Positions
from truelog.support.errors import BadInput
from truelog.support.settings import Settings


def _totals(click: DataFrame) -> DataFrame:
    return click.select("url", F.length("search_id").alias("letters"), F.col("search_id").alias("searches"))


TOTALS = View(reads=("click",), transform=_totals, key=("url",), measures={"letters": Sum(), "searches": Distinct()})


def _steps(click: DataFrame) -> DataFrame:
    return click.select("url", F.col("event_time").alias("at"), F.col("search_id").alias("said"))


def _in_order(inputs: DataFrame) -> DataFrame:
    """Each input, numbered by event time."""
    order = Window.partitionBy("url").orderBy("at", "topic", "partition", "offset")
    return inputs.select("url", F.row_number().over(order).alias("number"), "said")


NUMBERED = Group(
    reads=("click",),
    transform=_steps,
    by=("url",),
    inputs=("at", "said"),
    fold=_in_order,
    key=("url", "number"),
    values=("said",),
)

# (partition, url, search_id, second of the event), in the order in which the broker appends them
CLICKS = (
    (0, "a", "x", 30),
    (1, "a", "yy", 10),
    (1, "b", "x", 20),
    (0, "a", "x", 20),
    (1, "a", "zzz", 40),
)


@pytest.fixture
def ground(request: pytest.FixtureRequest, lab: Lab, s3: Settings) -> Iterator[Archived]:
    with archived(lab, s3, request.param) as made:
        for number, (partition, url, said, second) in enumerate(CLICKS):
            made.appended = 3 * 3600 + number
            made.click(partition, [(url, said, second)])
        made.stream()
        yield made


def explained(ground: Archived, page: Page = Page(), **key: str | None) -> Explanation:
    return explain(ground.lab.context, ground.compiled, key, page)


def events(found: Explanation) -> list[tuple[int, str, int]]:
    return [(each.number, each.coordinates, each.event_time.second) for each in found.events]


def after(found: Explanation) -> list[list[dict[str, Any]]]:
    return [list(each.rows) for each in found.events]


def rebuilt(ground: Archived, first: int, condition: sql.SQL) -> list[dict[str, Any]]:
    """The rows as a rebuild of only the first clicks makes them."""
    offsets = {p: sum(partition == p for partition, *_ in CLICKS[:first]) for p in (0, 1)}
    ground.rebuilder.rebuild(Positions({"click": offsets, "ticks": {0: 0}}, ground.ids))
    rows = sql.SQL("SELECT row_to_json(shown) FROM (SELECT {} FROM {} WHERE {} ORDER BY {}) AS shown").format(
        sql.SQL(", ").join(sql.SQL(f'{e} AS "{c}"') for c, e in ground.compiled.shown.items()),
        sql.Identifier("recon", ground.compiled.table),
        condition,
        sql.SQL(", ").join(map(sql.Identifier, ground.compiled.view.key)),
    )
    return [row for (row,) in ground.lab.connection.execute(rows).fetchall()]


@pytest.mark.parametrize("ground", [TOTALS], indirect=True)
def test_the_events_of_a_row_that_adds_up(ground: Archived) -> None:
    found = explained(ground, url="a")
    assert events(found) == [(1, "click:0:0", 30), (2, "click:1:0", 10), (3, "click:0:1", 20), (4, "click:1:2", 40)]
    assert after(found) == [
        [{"url": "a", "letters": 1, "searches": 1}],
        [{"url": "a", "letters": 3, "searches": 2}],
        [{"url": "a", "letters": 4, "searches": 2}],
        [{"url": "a", "letters": 7, "searches": 3}],
    ]
    assert [each.adds[0].row for each in found.events][1:3] == [
        {"url": "a", "letters": 2, "searches": 1},
        {"url": "a", "letters": 1, "searches": 1},
    ]
    assert (found.verdict, found.streamed, found.rebuilt) == (Verdict.EQUAL, after(found)[-1], after(found)[-1])
    assert (found.cost.records, found.cost.files > 0, found.cost.bytes > 0) == (5, True, True)
    for event, first in zip(found.events, (1, 2, 4, 5), strict=True):
        assert list(event.rows) == rebuilt(ground, first, sql.SQL("url = 'a'"))


@pytest.mark.parametrize("ground", [NUMBERED], indirect=True)
def test_the_events_of_a_group(ground: Archived) -> None:
    found = explained(ground, url="a")
    assert [[row["said"] for row in rows] for rows in after(found)] == [
        ["x"],
        ["yy", "x"],
        ["yy", "x", "x"],
        ["yy", "x", "x", "zzz"],
    ]
    assert [each.adds[0].row["said"] for each in found.events if each.adds[0].row] == ["x", "yy", "x", "zzz"]
    assert (found.verdict, found.streamed, found.rebuilt) == (Verdict.EQUAL, after(found)[-1], after(found)[-1])
    for event, first in zip(found.events, (1, 2, 4, 5), strict=True):
        assert list(event.rows) == rebuilt(ground, first, sql.SQL("url = 'a'"))

    one = explained(ground, url="a", number="2")
    assert [[row["said"] for row in rows] for rows in after(one)] == [[], ["x"], ["x"], ["x"]]
    assert one.verdict is Verdict.EQUAL
