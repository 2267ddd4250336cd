"""The search for bad records, with an oracle in place of the transform: what it finds and when it gives up."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyspark.errors import ArithmeticException

from truelog import Sum, View
from truelog.kernel import bad_records
from truelog.kernel.exclusions import Excluded
from truelog.log.records import Coordinates
from truelog.tables.compiled_view import CompiledView
from truelog.tables.table import Table

VIEW = View(reads=("click",), transform=lambda click: click, key=("url",), measures={"clicks": Sum()})
COMPILED = CompiledView((Table("clicks", VIEW, {}, ""),))
FIRST = 1_000  # the first offset of each partition


@dataclass
class Kept:
    """A frame that Spark keeps."""

    is_kept: bool = False

    def persist(self) -> "Kept":
        self.is_kept = True
        return self

    def unpersist(self) -> None:
        self.is_kept = False


@dataclass
class Oracle:
    """Partitions with some records. Some of them are bad. Counts the probes."""

    bad: Collection[tuple[int, int]]  # partition and number of the record
    records: Sequence[int]  # of each partition
    probes: int = 0
    frame: Kept = field(default_factory=Kept)
    attempts: list[Sequence[Excluded]] = field(default_factory=list)

    def spans(self, *_: object) -> list[Any]:
        return [bad_records._Span("click", p, FIRST, FIRST + max(0, n - 1), n) for p, n in enumerate(self.records)]

    def failure(self, _: object, events: Any, span: Any) -> str | None:
        assert self.frame.is_kept
        assert [*events] == ["click"]
        self.probes += 1
        assert self.probes < 100_000, "the search does not end"
        wrong = [n for p, n in self.bad if p == span.partition and span.first <= FIRST + n <= span.last]
        return f"bad {min(wrong)}" if wrong else None

    def attempt(self, excluded: Sequence[Excluded]) -> str:
        self.attempts.append(excluded)
        if len(self.attempts) == 1:
            raise ArithmeticException("the first error")
        return "merged"

    def run(self) -> str:
        with self.in_place():
            return bad_records.exclude_and_retry(COMPILED, lambda: {"click": self.frame}, self.attempt)  # type: ignore[dict-item]

    @contextmanager
    def in_place(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(bad_records, "_spans", self.spans)
            patched.setattr(bad_records, "_failure", self.failure)
            yield

    def gives_up(self) -> bool:
        with pytest.raises(ArithmeticException, match="the first error"):
            self.run()
        return len(self.attempts) == 1


def all_of(records: int) -> list[tuple[int, int]]:
    return [(0, number) for number in range(records)]


_partitions = st.lists(st.integers(0, 300), min_size=1, max_size=3)


@given(_partitions, st.sets(st.tuples(st.integers(0, 2), st.integers(0, 299)), max_size=20))
@example([1], {(0, 0)})
@example([2], {(0, 1)})
@example([300, 300], {(0, 299), (1, 0)})
def test_exactly_the_bad_records_are_left_out(records: list[int], drawn: set[tuple[int, int]]) -> None:
    bad = {(p, n) for p, n in drawn if p < len(records) and n < records[p]}
    oracle = Oracle(bad, records)
    if not bad:
        assert oracle.gives_up()
        return
    assert oracle.run() == "merged"
    first, second = oracle.attempts
    assert first == ()
    expected = [Excluded("click", p, FIRST + n, f"bad {n}") for p, n in sorted(bad)]
    assert sorted(second, key=lambda each: each.coordinates) == expected
    assert oracle.probes <= len(records) + len(bad) * (2 * max(records).bit_length() + 1)
    assert not oracle.frame.is_kept


def test_without_a_bad_record_the_first_error_is_raised_after_one_probe_of_each_partition() -> None:
    oracle = Oracle((), [5_000, 0, 10])
    assert oracle.gives_up()
    assert oracle.probes <= 2 + 1  # and one of the sample
    assert not oracle.frame.is_kept


@pytest.mark.parametrize(
    ("records", "most"), [(100, 100), (150, 100), (10_000, 100), (10_099, 100), (10_100, 101), (20_000, 200)]
)
def test_a_hundred_records_or_one_percent_may_be_left_out(records: int, most: int) -> None:
    every = [(0, n * records // (most + 1)) for n in range(most + 1)]
    assert Oracle(every[:most], [records]).run() == "merged"
    if most < records:
        assert Oracle(every, [records]).gives_up()


@pytest.mark.parametrize(("records", "is_sampled"), [(200, False), (201, True), (5_000, True)])
def test_a_sample_of_24_records_saves_the_search_if_most_are_bad(records: int, *, is_sampled: bool) -> None:
    oracle = Oracle(all_of(records), [records])
    assert oracle.gives_up()
    assert (oracle.probes == 24) == is_sampled


def test_one_good_record_in_the_sample_ends_it() -> None:
    """One of three records is bad, so 24 of 24 are bad in less than one of a hundred thousand million samples."""
    oracle = Oracle([(0, n) for n in range(0, 303, 3)], [303])
    assert oracle.gives_up()
    assert oracle.probes > 200


def test_the_sample_is_taken_from_partitions_by_their_size() -> None:
    """A small partition is bad, and a large one is not."""
    oracle = Oracle(all_of(100), [100, 100_000])
    assert oracle.run() == "merged"


def test_exclusions_that_nothing_founds_are_those_on_which_the_transform_does_not_fail() -> None:
    oracle = Oracle([(0, 1), (1, 2)], [9, 9])
    asked: list[Coordinates] = [("click", 0, FIRST + 1), ("click", 0, FIRST + 2), ("click", 1, FIRST + 2)]
    with oracle.in_place():
        found = bad_records.unfounded_exclusions(COMPILED, {"click": oracle.frame}, asked)  # type: ignore[dict-item]
    assert found == [("click", 0, FIRST + 2)]
    assert not oracle.frame.is_kept
