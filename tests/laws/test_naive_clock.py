"""The log clock: its time at given positions."""

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis
from hypothesis import strategies as st

from tests.laws.naive_clock import Log, Tick, at, clock
from truelog.log.positions import Positions


def tick(offset: int, second: int, **ends: dict[int, int]) -> Tick:
    return Tick(offset, at(second), Positions(ends))


TICKS = [tick(0, 0, a={0: 0, 1: 0}, b={0: 9}), tick(1, 10, a={0: 5, 1: 0}, b={0: 9}), tick(2, 20, a={0: 5, 1: 7})]


@pytest.mark.parametrize(
    ("ticks", "a", "read", "second"),
    [
        (0, {0: 9, 1: 9}, ["a"], None),  # the reader has not passed a tick
        (1, {0: 0, 1: 0}, ["a"], 0),
        (3, {0: 0, 1: 0}, ["a"], 0),  # the later ticks were passed, but their end offsets were not reached
        (3, {0: 5, 1: 0}, ["a"], 10),  # partition 1 is idle and does not hold the clock back
        (3, {0: 5, 1: 7}, ["a"], 20),
        (2, {0: 5, 1: 7}, ["a"], 10),  # the last tick's end offsets were reached, but the tick was not passed
        (3, {0: 5, 1: 7}, ["a", "b"], 20),  # the last tick has no end of b, because b did not exist
        (2, {0: 5, 1: 7}, ["a", "b"], None),  # the other ticks require offset 9 of b, which was not reached
        (3, {0: 5, 1: 7}, [], 20),
    ],
)
def test_the_clock_at_positions(ticks: int, a: dict[int, int], read: list[str], second: int | None) -> None:
    positions = Positions({"ticks": {0: ticks}, "a": a})
    assert clock(TICKS, positions, read) == (None if second is None else at(second))


def test_a_system_clock_that_is_set_back_does_not_set_the_log_back() -> None:
    ticks = [tick(0, 10, a={0: 1}), tick(1, 5, a={0: 1})]
    assert clock(ticks, Positions({"ticks": {0: 2}, "a": {0: 1}}), ["a"]) == at(10)


histories = st.lists(st.sampled_from(["a", "b", "c", "tick"]), max_size=40)
vectors = st.fixed_dictionaries({topic: st.integers(0, 15) for topic in ("a", "b", "c", "ticks")})
seeded = hypothesis(derandomize=True, database=None, deadline=None, max_examples=300)


def at_vector(vector: dict[str, int]) -> Positions:
    return Positions({topic: {0: offset} for topic, offset in vector.items()})


@seeded
@given(histories, vectors, st.sets(st.sampled_from(["a", "b", "c"])))
def test_every_record_that_was_appended_before_the_clocks_time_was_read(
    history: list[str], vector: dict[str, int], read: set[str]
) -> None:
    log, now = Log(history), clock(Log(history).ticks, at_vector(vector), read)
    for topic, offset, appended in log.records:
        if now is not None and topic in read and appended < now:
            assert offset < vector[topic]


@seeded
@given(histories, vectors, vectors)
def test_the_clock_is_monotonic_in_the_positions(history: list[str], one: dict[str, int], two: dict[str, int]) -> None:
    ticks, more = Log(history).ticks, {topic: max(one[topic], two[topic]) for topic in one}
    early, late = clock(ticks, at_vector(one), ["a", "b"]), clock(ticks, at_vector(more), ["a", "b"])
    assert early is None or (late is not None and early <= late)
