"""Tests of what Analytics says about rows that may still grow."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

import pytest

from tests.pages.audience import BEGIN, fill_audience
from truelog.exports.query import Condition, Operator
from truelog.reports.cubes import cube
from truelog.reports.cubes.completeness import Completeness, completeness
from truelog.reports.cubes.cube import Cube
from truelog.reports.cubes.question import Question
from truelog.storage.database import Connection, connect
from truelog.support.settings import Settings

HOUR = timedelta(hours=1)
RANGE = Question(BEGIN, BEGIN + HOUR)
OPEN_FROM = BEGIN + timedelta(minutes=58)
# The last two minutes of the hour are open, and each tenth minute was corrected.
WINDOWED = f"""
CREATE VIEW views.windowed AS SELECT minute, host, CASE WHEN minute >= '{OPEN_FROM}' THEN 'open'
    WHEN extract(minute FROM minute)::integer % 10 = 0 THEN 'corrected' ELSE 'complete' END AS status
    FROM views.page_audience
"""


@pytest.fixture
def audience(filled: Settings) -> Iterator[tuple[Connection, Cube]]:
    with connect(filled) as connection:
        fill_audience(connection, hosts=("shop.example", None))
        connection.execute(WINDOWED.encode())
        yield connection, cube.find_cube(filled, connection, "page_audience")
        connection.rollback()


def test_rows_are_final_up_to_the_time_of_the_answer(audience: tuple[Connection, Cube]) -> None:
    connection, asked = audience
    for as_of, open_from in (
        (None, RANGE.since),
        (RANGE.until, None),
        (RANGE.until - timedelta(seconds=1), RANGE.until - timedelta(seconds=1)),
        (RANGE.since - HOUR, RANGE.since),
    ):
        assert completeness(connection, asked, RANGE, as_of) == Completeness(open_from)


def test_rows_of_a_view_with_windows_are_counted_by_their_status(audience: tuple[Connection, Cube]) -> None:
    """Only rows of the question count, and the time of the answer does not matter."""
    connection, found = audience
    windowed = replace(found, view="windowed", has_windows=True)
    counts = {"complete": 104, "corrected": 12, "open": 4}
    assert completeness(connection, windowed, RANGE, None) == Completeness(OPEN_FROM, counts)
    shop = replace(RANGE, where=[Condition("host", Operator.EQUAL, "shop.example")])
    halves = {status: count // 2 for status, count in counts.items()}
    assert completeness(connection, windowed, shop, RANGE.since) == Completeness(OPEN_FROM, halves)
    early = completeness(connection, windowed, replace(RANGE, until=OPEN_FROM), None)
    assert early == Completeness(None, {"complete": 104, "corrected": 12})
