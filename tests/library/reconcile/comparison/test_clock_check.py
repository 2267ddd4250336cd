"""A wrong stored tick is found by each comparison, named as the cause, and replaced: a view with `keep`, real ticks."""

from datetime import timedelta

import pytest

from tests.beds.archived import MORNING, Archived
from tests.builders.log import a_tick, forget_ticks, move_tick
from truelog.kernel import clock, merge
from truelog.log.positions import Positions
from truelog.reconcile.offset_search import Cause
from truelog.reconcile.reconcile import reconcile
from truelog.reconcile.reconcile_result import ReconcileRequest, ReconcileResult

HOURLY = ReconcileRequest(repair=True, audit=True, incremental=True)
COMPARE = ReconcileRequest(incremental=True)
RAW = ReconcileRequest(from_raw=True)
FINE = {"a": 3, "b": 4}


def two_rows(ground: Archived) -> None:
    """Two rows that have not expired."""
    ground.tick(0)
    ground.click(0, [("a", "1", 1), ("a", "2", 2), ("b", "4", 3)])
    ground.tick(10)
    ground.stream()


pytestmark = pytest.mark.ground(filled=two_rows)


def rows(ground: Archived) -> dict[object, object]:
    query = f'SELECT url, spent FROM state."{ground.compiled.own.name}"'
    return {url: spent for url, spent in ground.lab.connection.execute(query.encode()).fetchall()}  # noqa: C416


def spoil(ground: Archived, days: int) -> None:
    """Change the time of the stored tick that decides the clock."""
    move_tick(ground.lab.connection, ground.ids[clock.TOPIC], 1, timedelta(days=days))


def stored(ground: Archived) -> list[tuple[object, ...]]:
    query = 'SELECT "offset", time FROM truelog.tick WHERE topic_id = %s ORDER BY 1'
    return ground.lab.connection.execute(query, (ground.ids[clock.TOPIC],)).fetchall()


def merge_later(ground: Archived) -> None:
    ground.tick(20)
    ground.stream()


def compared(ground: Archived, request: ReconcileRequest) -> ReconcileResult:
    return reconcile(ground.lab.context, ground.compiled, request)


def causes(found: ReconcileResult) -> list[tuple[object, object]]:
    return [(each["cause"], each["rows"]) for each in found.causes]


@pytest.mark.parametrize("request_", [COMPARE, pytest.param(RAW, marks=pytest.mark.nightly)])
def test_rows_that_a_wrong_tick_has_dropped(ground: Archived, request_: ReconcileRequest) -> None:
    right = stored(ground)
    spoil(ground, 10)
    merge_later(ground)
    assert rows(ground) == {}
    found = compared(ground, request_)
    assert (found.verdict, found.missing, causes(found)) == ("DIFFERENT", 2, [(Cause.CLOCK, 2)])
    assert "the stored ticks gave the clock 2026-03-11" in found.reason
    assert stored(ground)[:2] == right
    assert compared(ground, HOURLY).verdict == "EQUAL"
    assert rows(ground) == FINE
    merge_later(ground)
    assert rows(ground) == FINE


def test_a_wrong_tick_is_replaced_before_a_merge_uses_it(ground: Archived) -> None:
    right = stored(ground)
    spoil(ground, 10)
    found = compared(ground, COMPARE)
    assert (found.verdict, stored(ground)) == ("EQUAL", right)
    assert "which have replaced them" in found.reason
    assert compared(ground, COMPARE).reason == ""


def test_a_tick_that_no_archive_has_is_deleted(ground: Archived) -> None:
    right = stored(ground)
    ground.tick(10, ends="{no ends")
    a_tick(ground.lab.connection, ground.ids[clock.TOPIC], 2, MORNING + timedelta(days=9), Positions())
    ground.stream()
    assert rows(ground) == {}
    assert causes(compared(ground, COMPARE)) == [(Cause.CLOCK, 2)]
    assert stored(ground) == right


def test_rows_that_a_wrong_tick_has_kept(ground: Archived) -> None:
    ground.tick(4_000)
    ground.stream()
    assert rows(ground) == {}
    ground.click(1, [("c", "1", 3_000)])
    ground.stream()
    connection = ground.lab.connection
    insert = f'INSERT INTO state."{ground.compiled.own.name}" (minute, url, spent, last) VALUES (%s, %s, %s, %s)'
    for url, second in (("a", 2), ("b", 3)):
        last = MORNING + timedelta(seconds=second)
        connection.execute(insert.encode(), (MORNING, url, FINE[url], last))
    forget_ticks(connection, ground.ids[clock.TOPIC], 2)
    found = compared(ground, COMPARE)
    assert (found.extra, causes(found)) == (2, [(Cause.CLOCK, 2)])
    assert compared(ground, HOURLY).verdict == "EQUAL"
    assert rows(ground) == {"c": 1}


@pytest.mark.nightly
def test_a_wrong_clock_that_was_mended_still_explains_the_rows_of_other_views(ground: Archived) -> None:
    """Another view's comparison has replaced the tick, and the view has merged again."""
    spoil(ground, 10)
    merge_later(ground)
    clock.record_wrong(ground.lab.connection, ground.ids[clock.TOPIC], MORNING + timedelta(days=10, seconds=10))
    spoil(ground, -10)
    merge_later(ground)
    found = compared(ground, COMPARE)
    assert (found.reason, causes(found)) == ("", [(Cause.CLOCK, 2)])
    assert merge.stored_clock(ground.lab.connection, ground.compiled, ground.positions) == MORNING + timedelta(
        seconds=20
    )
