"""Exclusions: each is proved by a comparison, belongs to one reading, and a view stops if it has too many."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from unittest import mock

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tests.beds.archived import LATER, Archived
from truelog import Sum, View
from truelog.batch import partials
from truelog.batch.partial_selection import PartialRange
from truelog.kernel import bad_records, merge
from truelog.kernel import exclusions as kernel_exclusions
from truelog.kernel.exclusions import Excluded, Exclusions
from truelog.log.positions import Positions
from truelog.log.records import Coordinates, EventFrames
from truelog.reconcile.comparison import compare
from truelog.reconcile.offset_search import Cause
from truelog.reconcile.reconcile import reconcile
from truelog.reconcile.reconcile_result import ReconcileRequest, ReconcileResult
from truelog.support.errors import ServiceDown, TooManyExcluded
from truelog.tables.compiled_view import CompiledView


def _spent(click: DataFrame) -> DataFrame:
    """Fails on a `search_id` that is not a number."""
    return click.select("url", F.col("search_id").cast("int").alias("spent"))


SPENT = View(reads=("click",), transform=_spent, key=("url",), measures={"spent": Sum()})
HOURLY = ReconcileRequest(repair=True, audit=True, incremental=True)
COMPARE = ReconcileRequest(incremental=True)

pytestmark = pytest.mark.ground(view=SPENT)


def rows(ground: Archived) -> Mapping[object, object]:
    query = f'SELECT url, spent FROM state."{ground.compiled.own.name}"'
    return dict(ground.lab.connection.execute(query.encode()).fetchall())


def exclusions(ground: Archived, readings: Mapping[str, int] | None = None) -> Exclusions:
    return Exclusions(ground.lab.connection, ground.compiled, ground.ids, readings or {})


def excluded(ground: Archived) -> list[Coordinates]:
    return exclusions(ground).below(ground.positions)


def compared(ground: Archived, request: ReconcileRequest = COMPARE) -> ReconcileResult:
    return reconcile(ground.lab.context, ground.compiled, request)


def causes(found: ReconcileResult) -> set[object]:
    return {each["cause"] for each in found.causes}


@contextmanager
def leaving_out_without_reason() -> Iterator[None]:
    """The stream excludes the record at offset 1 of partition 0, as if the transform had failed on it."""

    def exclude(compiled: CompiledView, events: EventFrames, attempt: Callable[[list[Excluded]], object]) -> object:
        return attempt([Excluded("click", 0, 1, "out of luck")])

    with mock.patch.object(bad_records, "exclude_and_retry", exclude):
        yield


def test_a_record_excluded_for_a_reason_is_proved_once(ground: Archived, monkeypatch: pytest.MonkeyPatch) -> None:
    ground.click(0, [("a", "1", 0), ("a", "none", 1)])
    ground.stream()
    asked: list[Sequence[Coordinates]] = []
    check = bad_records.unfounded_exclusions

    def asking(compiled: CompiledView, events: EventFrames, records: Sequence[Coordinates]) -> list[Coordinates]:
        asked.append(records)
        return check(compiled, events, records)

    monkeypatch.setattr(bad_records, "unfounded_exclusions", asking)
    assert [compared(ground, request).verdict for request in (HOURLY, COMPARE)] == ["EQUAL", "EQUAL"]
    assert asked == [[("click", 0, 1)]]
    assert compared(ground, ReconcileRequest(from_raw=True)).equal
    assert asked == [[("click", 0, 1)]] * 2
    monkeypatch.setattr(kernel_exclusions, "spark_version", "another release")
    assert compared(ground).equal
    assert asked == [[("click", 0, 1)]] * 3
    assert excluded(ground) == [("click", 0, 1)]


def test_a_wrong_exclusion_takes_no_record_from_the_view(ground: Archived) -> None:
    """The stream has counted the record. The hourly comparison must not repair the right row."""
    ground.click(0, [("a", "1", 0), ("a", "2", 1)])
    ground.stream()
    exclusions(ground).add([Excluded("click", 0, 1, "by hand")])
    found = compared(ground, HOURLY)
    assert (found.verdict, found.repaired, rows(ground)) == ("EQUAL", 0, {"a": 3})
    assert excluded(ground) == []


def test_a_record_left_out_without_reason_is_named_and_counted(ground: Archived) -> None:
    ground.click(0, [("a", "1", 0), ("a", "2", 1), ("b", "5", 2)])
    with leaving_out_without_reason():
        ground.stream()
    assert rows(ground) == {"a": 1, "b": 5}
    for _ in range(2):  # an EQUAL never hides the difference
        found = compared(ground)
        assert (found.verdict, found.different, causes(found)) == ("DIFFERENT", 1, {Cause.EXCLUSION})
    assert found.causes[0]["about"] == (
        "the stream left out exactly the records click 0:[1, 2), but the transform does not fail on them"
    )
    found = compared(ground, HOURLY)
    assert (found.verdict, found.repaired, rows(ground)) == ("EQUAL", 1, {"a": 3, "b": 5})
    assert exclusions(ground).refuted(ground.positions) == []


@pytest.mark.parametrize("dies", [False, True])
def test_a_partial_without_a_record_left_out_without_reason_is_replaced(
    ground: Archived, dies: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rebuild from this partial equals the stream, also if the audit of partials fails once."""
    ground.click(0, [("a", "1", 0), ("a", "2", 1)])
    with leaving_out_without_reason():
        ground.stream()
    begin, end = Positions({"click": {0: 0, 1: 0}}, ground.ids), ground.positions.only(["click"])
    covered, own = PartialRange(LATER, begin, end), ground.compiled.own
    states = ground.rebuilder.states_between(own, begin, end)
    partials.replace(ground.lab.spark, ground.lab.settings, own, covered, states)
    if dies:
        with monkeypatch.context() as patched:
            patched.setattr(compare, "audit_partials", mock.Mock(side_effect=ServiceDown("S3 does not answer")))
            with pytest.raises(ServiceDown):
                compared(ground)
    found = compared(ground)
    assert (found.verdict, causes(found)) == ("DIFFERENT", {Cause.EXCLUSION})
    assert compared(ground, HOURLY).equal
    assert rows(ground) == {"a": 3}


def test_exclusions_are_of_one_reading_and_one_topic(ground: Archived) -> None:
    ground.click(0, [("a", "1", 0), ("a", "2", 1)])
    exclusions(ground).add([Excluded("click", 0, 1, "bad")])
    again = exclusions(ground, {"click": 1})
    assert again.below(ground.positions) == []
    again.add([Excluded("click", 0, 0, "bad again")])
    assert (excluded(ground), again.below(ground.positions)) == ([("click", 0, 1)], [("click", 0, 0)])
    created_again = replace(again, topic_ids={"click": "another"})
    assert created_again.below(ground.positions) == []
    again.drop_earlier()
    assert (excluded(ground), again.below(ground.positions)) == ([], [("click", 0, 0)])


def test_a_view_that_fails_on_most_records_of_small_batches_stops(ground: Archived) -> None:
    """A producer sends words instead of numbers from now on. Its batches are too small to show it."""
    ground.click(0, [("a", "1", 0)] * 30)
    ground.stream()
    ground.click(0, [("a", "none", 1)] * 5 + [("a", "1", 1)] * 35)
    ground.stream()
    assert (rows(ground), len(excluded(ground))) == ({"a": 65}, 5)
    before = merge.positions(ground.lab.connection, ground.compiled)
    ground.click(0, [("a", "none", 2)] * 40)
    with pytest.raises(TooManyExcluded, match=r"fails on 45 of the last 110 records.*last error: CAST_INVALID_INPUT"):
        ground.stream()
    assert merge.positions(ground.lab.connection, ground.compiled).offsets == before.offsets
    assert (rows(ground), len(excluded(ground))) == ({"a": 65}, 5)
