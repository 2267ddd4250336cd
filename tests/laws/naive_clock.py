"""The clock of the log, told plainly: what `truelog.kernel.clock` must answer; and logs to ask it about."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from truelog.log.positions import Positions
from truelog.log.ticks import TOPIC

START = datetime(2026, 11, 21, 10, 0, tzinfo=UTC)


def at(second: int) -> datetime:
    return START + timedelta(seconds=second)


@dataclass(frozen=True)
class Tick:
    """At `time` or later the topics reached to `ends`; the tick itself lies at `offset`."""

    offset: int
    time: datetime
    ends: Positions


def clock(ticks: Iterable[Tick], positions: Positions, read: Iterable[str]) -> datetime | None:
    """The clock at `positions` of somebody who reads these topics; None before the first tick that counts."""
    names = set(read)
    passed = (tick for tick in ticks if tick.offset < positions.at(TOPIC, 0))
    reached = (tick.time for tick in passed if positions.covers(tick.ends.only(names)))
    return max(reached, default=None)


class Log:
    """A log of three partitions, told as what happened second by second."""

    def __init__(self, happenings: list[str]) -> None:
        self.records: list[tuple[str, int, datetime]] = []  # topic, offset, when appended
        self.ticks: list[Tick] = []
        self.ends = {"a": 0, "b": 0, "c": 0}
        pending: datetime | None = None
        for second, happening in enumerate(happenings):
            if happening in self.ends:
                self.records.append((happening, self.ends[happening], at(second)))
                self.ends[happening] += 1
            elif pending is None:
                pending = at(second)  # the time is taken; records may come before the offsets are read
            else:
                ends = Positions({topic: {0: end} for topic, end in self.ends.items()})
                self.ticks.append(Tick(len(self.ticks), pending, ends))
                pending = None
