"""A naive log clock, whose results `truelog.kernel.clock` must match, and logs for comparing the two clocks."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from truelog.log.positions import Positions
from truelog.schema.names import TICKS

START = datetime(2026, 11, 21, 10, 0, tzinfo=UTC)


def at(second: int) -> datetime:
    return START + timedelta(seconds=second)


@dataclass(frozen=True)
class Tick:
    """A tick at `offset`. At `time` or later, the topics ended at `ends`."""

    offset: int
    time: datetime
    ends: Positions


def clock(ticks: Iterable[Tick], positions: Positions, read: Iterable[str]) -> datetime | None:
    """The clock at `positions` for a reader of these topics; None before the first tick that counts."""
    names = set(read)
    passed = (tick for tick in ticks if tick.offset < positions.at(TICKS, 0))
    reached = (tick.time for tick in passed if positions.covers(tick.ends.only(names)))
    return max(reached, default=None)


class Log:
    """A log of three topics with one partition each, built from one step per second."""

    def __init__(self, steps: list[str]) -> None:
        self.records: list[tuple[str, int, datetime]] = []  # topic, offset, append time
        self.ticks: list[Tick] = []
        self.ends = {"a": 0, "b": 0, "c": 0}
        pending: datetime | None = None
        for second, step in enumerate(steps):
            if step in self.ends:
                self.records.append((step, self.ends[step], at(second)))
                self.ends[step] += 1
            elif pending is None:
                pending = at(second)  # the tick's time is set; more records may arrive before the offsets are read
            else:
                ends = Positions({topic: {0: end} for topic, end in self.ends.items()})
                self.ticks.append(Tick(len(self.ticks), pending, ends))
                pending = None
