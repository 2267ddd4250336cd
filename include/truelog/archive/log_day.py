"""Log days: where one day of the log ends and the next begins in each partition.

A broker's clock may step back, so a query for "Tuesday's records" by time could return different records later. A log
day is therefore a range of offsets. A day begins at the first record whose broker time has reached the day; this start
is recorded once and never revised. No later record belongs to an earlier day, whatever its own time. In a partition
without new records, the day begins at the archive's position when a tick proves that the partition is quiet.

A broker's clock may also jump forward. A record whose broker time is more than a day past the newest tick begins no log
day that has not begun by the newest tick's time.

A day's name is its start time in seconds since the epoch, so that the length of days can change later.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import cast

import numpy as np
from numpy.typing import NDArray

from truelog.control import lease
from truelog.control.lease import Holder
from truelog.log.clock_guard import LIMIT
from truelog.log.positions import Positions
from truelog.storage.database import Connection

Int64Array = NDArray[np.int64]

_MICROSECONDS = 1_000_000


@dataclass(frozen=True, order=True)
class Start:
    """A log day and its first offset."""

    day: int
    first_offset: int


def assign_days(known: Iterable[Start], offsets: Int64Array, times: Int64Array, length: int) -> Int64Array:
    """The day of each record in one partition; records are in offset order, and broker times are in microseconds."""
    days = times // (length * _MICROSECONDS) * length
    for start in known:
        np.maximum(days, start.day, out=days, where=offsets >= start.first_offset)
    return np.maximum.accumulate(days)


def held_times(times: Int64Array, clock: datetime | None) -> Int64Array:
    """The broker times in microseconds, with the clock of the log in place of times more than a day past the clock."""
    if clock is None:
        return times
    now, limit = int(clock.timestamp()) * _MICROSECONDS, int(LIMIT.total_seconds()) * _MICROSECONDS
    return np.where(times > now + limit, now, times)


def day_starts(offsets: Int64Array, days: Int64Array) -> list[Start]:
    """The first record of each day; records are in offset order."""
    first = np.flatnonzero(np.diff(days, prepend=-1))
    return [Start(int(days[i]), int(offsets[i])) for i in first]


@dataclass(frozen=True)
class LogDays:
    """Every recorded start, in order, by topic and partition."""

    by_partition: Mapping[tuple[str, int], tuple[Start, ...]]

    def at(self, topic: str, partition: int) -> tuple[Start, ...]:
        return self.by_partition.get((topic, partition), ())

    def tail(self, topic: str, partition: int, position: int) -> tuple[Start, ...]:
        """The starts that archiving from `position` needs: the day at that position and all later days."""
        known = self.at(topic, partition)
        passed = [start for start in known if start.first_offset <= position]
        return known[max(0, len(passed) - 1) :]

    def first_offset(self, topic: str, partition: int, day: int) -> int | None:
        """The offset where `day` begins; None if the partition has not reached the day.

        A day without records has no start. Such a day is the empty range before the start of the next day.
        """
        return next((s.first_offset for s in self.at(topic, partition) if s.day >= day), None)

    def begin(self, day: int, positions: Positions) -> Positions | None:
        """The positions where `day` begins; None unless every partition is archived up to that position."""
        offsets: dict[str, dict[int, int]] = {}
        for topic, partition in positions.partitions():
            first = self.first_offset(topic, partition, day)
            if first is None or first > positions.at(topic, partition):
                return None
            offsets.setdefault(topic, {})[partition] = first
        return Positions(offsets, positions.ids)

    def closed(self, positions: Positions) -> list[int]:
        """The days that can no longer gain records, because the archive is in a later day in every partition."""
        days: set[int] = set()
        reached: list[int] = []
        for topic, partition in positions.partitions():
            position = positions.at(topic, partition)
            passed = [s.day for s in self.at(topic, partition) if s.first_offset <= position]
            days.update(passed)
            reached.append(max(passed, default=-1))
        return sorted(day for day in days if day < min(reached))

    def quiet(self, positions: Positions, day: int) -> dict[tuple[str, int], Start]:
        """Starts of `day` in partitions where no record began the day; `positions` must be past a tick of that day."""
        return {
            (topic, partition): Start(day, positions.at(topic, partition))
            for topic, partition in positions.partitions()
            if self.first_offset(topic, partition, day) is None
        }


def load_days(connection: Connection, ids: Mapping[str, str]) -> LogDays:
    """The recorded starts of the topics with these ids."""
    rows = connection.execute(
        "SELECT topic, partition, day, first_offset FROM truelog.log_day WHERE topic_id = ANY(%s) ORDER BY day",
        (list(ids.values()),),
    )
    starts: dict[tuple[str, int], list[Start]] = {}
    for topic, partition, day, first_offset in cast(list[tuple[str, int, int, int]], rows.fetchall()):
        starts.setdefault((topic, partition), []).append(Start(day, first_offset))
    return LogDays({key: tuple(value) for key, value in starts.items()})


def record_days(
    connection: Connection, holder: Holder, ids: Mapping[str, str], new: Iterable[tuple[str, int, Start]]
) -> None:
    """Record starts permanently; a recorded start never changes.

    Raises:
        Fenced: another archive process has taken over, and its starts are the valid ones.
    """
    with connection.transaction(), connection.cursor() as cursor:
        lease.require_lease(connection, holder)
        cursor.executemany(
            "INSERT INTO truelog.log_day (topic, topic_id, partition, day, first_offset) "
            "VALUES (%s, %s, %s, %s, %s) ON CONFLICT DO NOTHING",
            [(topic, ids[topic], partition, start.day, start.first_offset) for topic, partition, start in new],
        )


def day_of(time: datetime, length: int) -> int:
    """The day of `time` by the clock alone."""
    return int(time.timestamp()) // length * length


def as_datetime(day: int) -> datetime:
    return datetime.fromtimestamp(day, UTC)
