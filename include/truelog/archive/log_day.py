"""Log days: where one day of the log ends and the next begins, partition by partition.

A broker's clock may step back, so "the records of Tuesday" by their times is a set that changes when it is asked for
again. A log day is a range of offsets instead: it begins at the first record whose broker time has reached it, is
recorded once, and is never revised; a later record belongs to the later day whatever its own clock says. A partition
to which nobody writes has no such record: its day begins where the archive stood when a tick had proved it quiet.

A day is named by the moment it begins, in seconds since the epoch, so that its length may be changed later.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import cast

import numpy as np
from numpy.typing import NDArray

from truelog.control import lease
from truelog.control.lease import Holder
from truelog.log.positions import Positions
from truelog.storage.database import Connection

Int64Array = NDArray[np.int64]

_MICROSECONDS = 1_000_000


@dataclass(frozen=True, order=True)
class Start:
    """A log day, and the first offset that belongs to it."""

    day: int
    first_offset: int


def assign_days(known: Iterable[Start], offsets: Int64Array, times: Int64Array, length: int) -> Int64Array:
    """The day of each record of one partition, given in offset order with broker times in microseconds."""
    days = times // (length * _MICROSECONDS) * length
    for start in known:
        np.maximum(days, start.day, out=days, where=offsets >= start.first_offset)
    return np.maximum.accumulate(days)


def day_starts(offsets: Int64Array, days: Int64Array) -> list[Start]:
    """The first record of each day among records in offset order."""
    first = np.flatnonzero(np.diff(days, prepend=-1))
    return [Start(int(days[i]), int(offsets[i])) for i in first]


@dataclass(frozen=True)
class LogDays:
    """Every recorded start, by topic and partition."""

    by_partition: Mapping[tuple[str, int], tuple[Start, ...]]

    def at(self, topic: str, partition: int) -> tuple[Start, ...]:
        return self.by_partition.get((topic, partition), ())

    def tail(self, topic: str, partition: int, position: int) -> tuple[Start, ...]:
        """What an archiver that stands at `position` must know: the day it is in, and all later ones."""
        known = self.at(topic, partition)
        passed = [start for start in known if start.first_offset <= position]
        return known[max(0, len(passed) - 1) :]

    def first_offset(self, topic: str, partition: int, day: int) -> int | None:
        """Where `day` begins; None while the partition has not reached it.

        A day without records has no start of its own: it is the empty range in front of the next one.
        """
        return next((s.first_offset for s in self.at(topic, partition) if s.day >= day), None)

    def begin(self, day: int, positions: Positions) -> Positions | None:
        """Where `day` begins in every partition; None unless all of them are archived that far."""
        offsets: dict[str, dict[int, int]] = {}
        for topic, partition in positions.partitions():
            first = self.first_offset(topic, partition, day)
            if first is None or first > positions.at(topic, partition):
                return None
            offsets.setdefault(topic, {})[partition] = first
        return Positions(offsets, positions.ids)

    def closed(self, positions: Positions) -> list[int]:
        """The days that no record can join any more: every partition, as archived, is in a later one."""
        days: set[int] = set()
        reached: list[int] = []
        for topic, partition in positions.partitions():
            position = positions.at(topic, partition)
            passed = [s.day for s in self.at(topic, partition) if s.first_offset <= position]
            days.update(passed)
            reached.append(max(passed, default=-1))
        return sorted(day for day in days if day < min(reached))

    def quiet(self, positions: Positions, day: int) -> dict[tuple[str, int], Start]:
        """Starts of `day` where no record brought it, given that `positions` passed a tick of that day."""
        return {
            (topic, partition): Start(day, positions.at(topic, partition))
            for topic, partition in positions.partitions()
            if self.first_offset(topic, partition, day) is None
        }


def load_days(connection: Connection, ids: Mapping[str, str]) -> LogDays:
    """The recorded starts of the topics named by `ids`."""
    found = connection.execute(
        "SELECT topic, partition, day, first_offset FROM truelog.log_day WHERE topic_id = ANY(%s) ORDER BY day",
        (list(ids.values()),),
    )
    by: dict[tuple[str, int], list[Start]] = {}
    for topic, partition, day, first_offset in cast(list[tuple[str, int, int, int]], found.fetchall()):
        by.setdefault((topic, partition), []).append(Start(day, first_offset))
    return LogDays({key: tuple(value) for key, value in by.items()})


def record_days(
    connection: Connection, holder: Holder, ids: Mapping[str, str], new: Iterable[tuple[str, int, Start]]
) -> None:
    """Record starts for ever; what stands there already stays.

    Raises:
        Fenced: another process archives now, and what it recorded must hold.
    """
    with connection.transaction(), connection.cursor() as cursor:
        lease.require_lease(connection, holder)
        cursor.executemany(
            "INSERT INTO truelog.log_day (topic, topic_id, partition, day, first_offset) "
            "VALUES (%s, %s, %s, %s, %s) ON CONFLICT DO NOTHING",
            [(topic, ids[topic], partition, start.day, start.first_offset) for topic, partition, start in new],
        )


def day_of(time: datetime, length: int) -> int:
    """The day, by the clock alone, that `time` falls in."""
    return int(time.timestamp()) // length * length


def as_datetime(day: int) -> datetime:
    return datetime.fromtimestamp(day, UTC)
