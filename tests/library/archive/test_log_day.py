"""Log days compared with a naive oracle, for any clocks and any division into batches."""

import uuid
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from truelog.archive import log_day
from truelog.archive.log_day import LogDays, Start, as_datetime, assign_days, day_starts, held_times
from truelog.control import lease
from truelog.log.positions import Positions
from truelog.storage.database import Connection
from truelog.support.errors import Fenced
from truelog.support.settings import Settings

LENGTH = 10
KEY = ("page_view", 0)


@dataclass(frozen=True)
class Log:
    """A partition: offsets with holes, a clock that may step back, and the offsets where batches end."""

    offsets: list[int]
    seconds: list[float]
    cuts: list[int]


@st.composite
def logs(draw: st.DrawFn) -> Log:
    offsets = sorted(draw(st.sets(st.integers(0, 200), min_size=1, max_size=60)))
    seconds = draw(st.lists(st.floats(0, 100), min_size=len(offsets), max_size=len(offsets)))
    cuts = sorted(draw(st.sets(st.integers(0, 201), max_size=6)))
    return Log(offsets, seconds, [0, *cuts, 202])


def oracle(log: Log, known: tuple[Start, ...] = ()) -> dict[int, int]:
    """Each record's day: its own day, or the log's current day if that day is later."""
    day, days = -1, {}
    for offset, second in zip(log.offsets, log.seconds, strict=True):
        recorded = [s.day for s in known if s.first_offset <= offset]
        day = max(day, int(second // LENGTH) * LENGTH, *recorded)
        days[offset] = day
    return days


def archived(log: Log, known: tuple[Start, ...] = ()) -> tuple[dict[int, int], LogDays]:
    """Archive the same log in batches. Each batch sees only the starts that earlier batches recorded."""
    days: dict[int, int] = {}
    table = LogDays({KEY: known})
    for begin, end in zip(log.cuts, log.cuts[1:], strict=False):
        inside = [i for i, offset in enumerate(log.offsets) if begin <= offset < end]
        offsets = np.array([log.offsets[i] for i in inside], dtype=np.int64)
        times = np.array([int(log.seconds[i] * 1e6) for i in inside], dtype=np.int64)
        assigned = assign_days(table.tail(*KEY, begin), offsets, times, LENGTH)
        days.update(zip(offsets.tolist(), assigned.tolist(), strict=True))
        table = recorded_once(table, day_starts(offsets, assigned))
    return days, table


def recorded_once(table: LogDays, new: list[Start]) -> LogDays:
    by_day = {s.day: s for s in [*new, *table.at(*KEY)]}  # a recorded start never changes
    return LogDays({KEY: tuple(sorted(by_day.values()))})


@given(logs())
def test_days_do_not_depend_on_the_batches(log: Log) -> None:
    days, _ = archived(log)
    assert days == oracle(log)


@given(logs(), st.integers(0, 12), st.integers(0, 200))
def test_a_start_that_a_tick_recorded_is_kept(log: Log, day: int, position: int) -> None:
    """A tick starts a day at the archive's position, but only if no earlier record has begun that day."""
    known = (Start(day * LENGTH, position),)
    assume(all(other < day * LENGTH for offset, other in oracle(log).items() if offset < position))
    days, table = archived(log, known)
    assert days == oracle(log, known)
    assert known[0] in table.at(*KEY)


def test_the_record_at_the_start_that_a_tick_recorded_belongs_to_its_day() -> None:
    """The record's own clock is slow."""
    log = Log(offsets=[5, 6], seconds=[3, 12], cuts=[0, 202])
    assert archived(log, (Start(10, 5),))[0] == {5: 10, 6: 10}


@given(logs())
def test_days_never_decrease_and_begin_at_their_starts(log: Log) -> None:
    days, table = archived(log)
    assert list(days.values()) == sorted(days.values())
    for start in table.at(*KEY):
        assert start.first_offset == min(o for o, day in days.items() if day == start.day)


@given(logs())
def test_replaying_a_batch_finds_the_same_starts(log: Log) -> None:
    """After a crash between recording and committing, the records are read again in different batches."""
    _, table = archived(log)
    again, _ = archived(Log(log.offsets, log.seconds, [0, 202]), table.at(*KEY))
    assert again == oracle(log)


def test_a_record_from_a_slow_clock_belongs_to_the_later_day() -> None:
    log = Log(offsets=[0, 1, 2], seconds=[9, 10, 9], cuts=[0, 3])
    assert archived(log)[0] == {0: 0, 1: 10, 2: 10}


def test_a_day_is_closed_once_every_partition_is_archived_beyond_it() -> None:
    days = LogDays({("t", 0): (Start(0, 0), Start(10, 5)), ("t", 1): (Start(0, 0), Start(20, 7))})
    assert days.closed(Positions({"t": {0: 5, 1: 7}})) == [0]
    assert days.closed(Positions({"t": {0: 4, 1: 7}})) == []  # the archive has not reached the next day's start
    assert days.closed(Positions({"t": {0: 5, 1: 7, 2: 3}})) == []  # no day has begun in partition 2


def test_a_day_begins_where_every_partition_is_archived_up_to_its_start() -> None:
    days = LogDays({("t", 0): (Start(0, 0), Start(10, 5)), ("t", 1): (Start(0, 0), Start(20, 7))})
    reached, beyond = (Positions({"t": {0: o, 1: o + 2}}, {"t": "an-id"}) for o in (5, 9))
    for positions in (reached, beyond):
        found = days.begin(10, positions)
        assert found == reached
        assert found.ids == {"t": "an-id"}
    assert days.begin(10, Positions({"t": {0: 4, 1: 9}})) is None
    assert days.begin(20, beyond) is None  # partition 0 has not reached the day


def test_the_day_of_a_time_is_its_start() -> None:
    assert [log_day.day_of(log_day.as_datetime(second), LENGTH) for second in (0, 9, 10, 25)] == [0, 0, 10, 20]


def test_a_day_without_records_is_an_empty_range() -> None:
    days = LogDays({("t", 0): (Start(0, 0), Start(20, 7))})
    assert days.first_offset("t", 0, 10) == days.first_offset("t", 0, 20) == 7
    assert days.first_offset("t", 0, 30) is None


def test_a_tick_starts_a_day_only_in_partitions_where_no_record_did() -> None:
    days = LogDays({("t", 0): (Start(0, 0), Start(10, 5)), ("t", 1): (Start(0, 0),)})
    new = days.quiet(Positions({"t": {0: 9, 1: 4, 2: 0}}), 10)
    assert new == {("t", 1): Start(10, 4), ("t", 2): Start(10, 0)}


def test_the_tail_has_each_start_that_records_from_a_position_need() -> None:
    """An archive that ended before its commit reads records again whose days are already recorded."""
    days = LogDays({KEY: (Start(0, 5), Start(10, 9), Start(20, 12))})
    assert days.tail(*KEY, 0) == (Start(0, 5), Start(10, 9), Start(20, 12))
    assert days.tail(*KEY, 9) == (Start(10, 9), Start(20, 12))
    assert days.tail(*KEY, 10) == (Start(10, 9), Start(20, 12))
    assert days.tail(*KEY, 50) == (Start(20, 12),)
    assert LogDays({}).tail(*KEY, 3) == ()


def test_a_day_starts_once_and_only_the_lease_holder_starts_it(postgresql: Settings, connection: Connection) -> None:
    ids, elsewhere, first = {"t": uuid.uuid4().hex}, {"t": uuid.uuid4().hex}, Start(10, 5)
    taken = lease.take_lease(postgresql, "a test of log days")
    try:
        log_day.record_days(connection, taken.holder, ids, [("t", 0, first)])
        log_day.record_days(connection, taken.holder, ids, [("t", 0, Start(10, 7)), ("t", 0, Start(20, 9))])
        assert log_day.load_days(connection, ids).at("t", 0) == (first, Start(20, 9))
        assert log_day.load_days(connection, elsewhere).at("t", 0) == ()

        succeed = "UPDATE truelog.lease SET epoch = epoch + 1 WHERE application = 'a test of log days'"
        connection.execute(succeed)  # as a successor does
        with pytest.raises(Fenced):
            log_day.record_days(connection, taken.holder, ids, [("t", 0, Start(30, 11))])
        assert log_day.load_days(connection, ids).at("t", 0) == (first, Start(20, 9))
    finally:
        taken.release()


@given(st.lists(st.integers(0, 60 * 86_400), max_size=20), st.integers(0, 86_400 * 30))
def test_a_time_more_than_a_day_past_the_clock_begins_no_day(seconds: list[int], clock: int) -> None:
    times = np.array(seconds, dtype=np.int64) * 1_000_000
    held = held_times(times, as_datetime(clock)).tolist()
    for time, used in zip(times.tolist(), held, strict=True):
        assert used == (clock * 1_000_000 if time - clock * 1_000_000 > 86_400 * 1_000_000 else time)
    assert held_times(times, None).tolist() == times.tolist()


def test_a_time_at_the_limit_is_not_held() -> None:
    limit = 86_400 * 1_000_000
    assert held_times(np.array([limit, limit + 1]), as_datetime(0)).tolist() == [limit, 0]
