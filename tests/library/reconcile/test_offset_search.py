"""The offset search finds planted ranges, and the ranges that it finds explain the differing rows."""

from collections import Counter
from itertools import groupby

from hypothesis import given
from hypothesis import settings as hypothesis
from hypothesis import strategies as st

from truelog.log.positions import Range
from truelog.reconcile.offset_search import Contribution, ContributionRun, exceeds_recount, search_ranges

TOPIC = "click"

Log = dict[int, list[tuple[str, int]]]  # by partition: key and amount of each record


def added(log: Log, batch: list[Range]) -> Counter[str]:
    """The amounts that the records in these ranges add to each key."""
    found: Counter[str] = Counter()
    for each in batch:
        for key, amount in log[each.partition][each.start : each.end]:
            found[key] += amount
    return found


def longest_runs(log: Log, keys: set[str]) -> list[ContributionRun]:
    """The longest series of records in each partition that add only to these keys."""
    found = []
    for partition, records in log.items():
        placed = [(key in keys, Contribution(offset, {key: amount})) for offset, (key, amount) in enumerate(records)]
        series = [[each for _, each in group] for inside, group in groupby(placed, lambda p: p[0]) if inside]
        if series:
            found.append(ContributionRun(TOPIC, partition, max(series, key=len)))
    return found


def search_lost(log: Log, batch: list[Range]) -> list[Range]:
    """The ranges that the search finds for a lost batch, from the left end or else from the right."""
    wanted = added(log, batch)
    runs = longest_runs(log, set(wanted))
    return search_ranges(runs, wanted) or search_ranges(runs, wanted, from_right=True)


def test_a_batch_of_two_partitions_is_found_among_records_of_its_keys() -> None:
    keys = {0: "abcabxyxyzwabcab", 1: "xaabzwzvaabz"}
    log = {partition: [(key, 1) for key in each] for partition, each in keys.items()}
    batch = [Range(TOPIC, 0, 5, 11), Range(TOPIC, 1, 4, 8)]
    assert sorted(search_lost(log, batch), key=lambda r: r.partition) == batch


def test_amounts_that_no_range_holds_are_not_explained() -> None:
    log: Log = {0: [("a", 1), ("b", 1), ("a", 1), ("c", 1)]}
    runs = longest_runs(log, {"a", "c"})
    assert search_ranges(runs, {"a": 2, "c": 1}) == []
    assert search_ranges(runs, {"c": 7}) == []
    assert search_ranges(runs, {"a": 0}) == []
    assert search_ranges([], {"a": 1}) == []


records = st.lists(st.tuples(st.sampled_from("abcdefghijkl"), st.integers(0, 3)), min_size=1, max_size=30)
cuts = st.tuples(st.integers(0, 30), st.integers(0, 30)).map(sorted)


@given(st.lists(st.tuples(records, cuts), min_size=1, max_size=3))
@hypothesis(deadline=None, max_examples=300)
def test_found_ranges_hold_exactly_the_wanted_amounts(drawn: list[tuple[list[tuple[str, int]], list[int]]]) -> None:
    log = {partition: each for partition, (each, _) in enumerate(drawn)}
    batch = [Range(TOPIC, p, *cut) for p, (_, cut) in enumerate(drawn)]
    found = search_lost(log, batch)
    if found:
        wanted = added(log, batch)
        assert +added(log, found) == +wanted
    if len(drawn) == 1 and len({key for key, _ in log[0]}) == len(log[0]):  # in this case, the range is unique
        keys = {key for key, amount in added(log, batch).items() if amount}
        assert {key for each in found for key, amount in log[0][each.start : each.end] if amount} == keys


def test_a_sum_beyond_any_duplicate() -> None:
    assert [exceeds_recount(streamed, 5) for streamed in (-1, 0, None, 10, 11)] == [True, False, False, False, True]
    assert exceeds_recount(1, None)
