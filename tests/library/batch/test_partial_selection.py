"""Whatever partials exist, a rebuild at V reads every record below V exactly once."""

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, seed, settings
from hypothesis import strategies as st

from truelog.batch.partial_selection import PartialRange, TouchedDays, select_partials
from truelog.erasure.ledger import TouchedDay
from truelog.log.positions import Positions, Range
from truelog.support.errors import TopicRecreated

IDS = {"page_view": "id"}
MIDNIGHT = datetime(2026, 11, 1, tzinfo=UTC)
offsets = st.dictionaries(st.integers(0, 2), st.integers(0, 40), max_size=3)
partials = st.lists(st.tuples(offsets, offsets), max_size=6)


def at(by: dict[int, int]) -> Positions:
    return Positions({"page_view": by}, IDS)


def partial(number: int, begin: dict[int, int], end: dict[int, int]) -> PartialRange:
    both = {p: max(begin.get(p, 0), end.get(p, 0)) for p in begin | end}
    return PartialRange(MIDNIGHT + timedelta(days=number), at(begin), at(both))


def records(ranges: list[Range]) -> Counter[tuple[int, int]]:
    return Counter((r.partition, offset) for r in ranges for offset in range(r.start, r.end))


@seed(1)
@settings(deadline=None, max_examples=500)
@given(drawn=partials, here=offsets)
def test_every_record_below_v_is_read_exactly_once(
    drawn: list[tuple[dict[int, int], dict[int, int]]], here: dict[int, int]
) -> None:
    found = select_partials([partial(i, *each) for i, each in enumerate(drawn)], at(here))
    taken = [*found.records, *(r for each in found.partials for r in each.offset_ranges)]
    assert records(taken) == Counter((p, o) for p, end in here.items() for o in range(end))


def test_consecutive_days_leave_only_later_records() -> None:
    days = [partial(i, {0: 10 * i, 1: 5 * i}, {0: 10 * i + 10, 1: 5 * i + 5}) for i in range(3)]
    found = select_partials(reversed(days), at({0: 32, 1: 15}))
    assert found.partials == days
    assert found.records == [Range("page_view", 0, 30, 32)]


def test_a_day_that_reaches_past_v_in_one_partition_is_not_selected() -> None:
    found = select_partials([partial(0, {}, {0: 10, 1: 10})], at({0: 20, 1: 9}))
    assert not found.partials
    assert records(list(found.records)) == records([Range("page_view", 0, 0, 20), Range("page_view", 1, 0, 9)])


def test_the_older_of_two_overlapping_partials_is_selected() -> None:
    older, newer = partial(0, {}, {0: 10}), partial(1, {0: 5}, {0: 15})
    assert select_partials([newer, older], at({0: 15})).partials == [older]


def test_an_overlap_in_one_partition_is_enough_to_leave_a_partial_out() -> None:
    older, newer = partial(0, {}, {0: 10, 1: 10}), partial(1, {0: 10, 1: 5}, {0: 20, 1: 15})
    assert select_partials([newer, older], at({0: 20, 1: 15})).partials == [older]


def test_partials_that_touch_do_not_overlap_in_either_order() -> None:
    first, second = partial(0, {0: 10}, {0: 20}), partial(1, {}, {0: 10})
    assert select_partials([first, second], at({0: 20})).partials == [first, second]


def test_partials_of_a_recreated_topic_are_refused() -> None:
    other = Positions({"page_view": {0: 20}}, {"page_view": "another"})
    with pytest.raises(TopicRecreated):
        select_partials([partial(0, {}, {0: 10})], other)


DAY = timedelta(days=1)


@pytest.mark.parametrize(
    ("reach", "touched"),
    [(timedelta(), [3]), (timedelta(seconds=1), [3, 4]), (DAY, [3, 4]), (DAY + timedelta(seconds=1), [3, 4, 5])],
)
def test_an_erasure_touches_its_day_and_the_days_that_its_records_decide_about(
    reach: timedelta, touched: list[int]
) -> None:
    erased = TouchedDays([TouchedDay("one", MIDNIGHT + 3 * DAY, is_rewritten=False)], DAY, reach)
    days = [partial(number, {}, {0: 1}) for number in range(8)]
    assert [number for number, each in enumerate(days) if not erased.are_in(each)] == touched
    assert all(erased.are_in(replace(each, erasures=frozenset({"one"}))) for each in days)


def test_an_erasure_of_a_short_log_day_touches_the_longer_one_around_it() -> None:
    """Log days were hours, and are days now."""
    five = MIDNIGHT + DAY + timedelta(hours=5)
    erased = TouchedDays([TouchedDay("one", five, is_rewritten=False)], DAY)
    assert [erased.are_in(partial(number, {}, {0: 1})) for number in range(4)] == [True, False, False, True]


def test_a_partial_shows_only_the_erasures_that_the_archive_showed() -> None:
    days = [TouchedDay("one", MIDNIGHT, is_rewritten=True), TouchedDay("two", MIDNIGHT, is_rewritten=False)]
    touched = TouchedDays(days, DAY)
    made = replace(partial(0, {}, {0: 1}), erasures=touched.erasures(MIDNIGHT, rewritten=True))
    assert made.erasures == {"one"}
    assert not touched.are_in(made)
