"""Selects the partials that a rebuild at positions V may use, and the records that the rebuild must also read.

A partial that reaches past V in any partition contains records that a view at V has not read, so it cannot be used. The
selected partials must not overlap. The rebuild reads the remaining records from the archive, so that every record below
V counts exactly once.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import uuid4

from truelog.erasure.ledger import TouchedDay
from truelog.log.positions import Positions, Range


@dataclass(frozen=True)
class PartialRange:
    """A partial's log day, and the records [begin, end) of each partition that the partial covers."""

    day: datetime
    begin: Positions
    end: Positions
    readings: Mapping[str, int] = field(default_factory=dict)  # by which the records were judged, 0 if absent
    erasures: frozenset[str] = frozenset()  # that had erased records which decide about this day, when it was read
    id: str = field(default_factory=lambda: uuid4().hex, compare=False)  # no other partial has it; "" of early releases

    @property
    def offset_ranges(self) -> list[Range]:
        return self.begin.ranges_to(self.end)


@dataclass(frozen=True)
class TouchedDays:
    """The log days in which erasures cover records, as they matter to one table.

    `reach` is how long an event decides about later events: for a table without copies, an erased event may have been
    the first of its id. So an erasure also touches the days that begin within the reach of its day.
    """

    days: Sequence[TouchedDay] = ()
    length: timedelta = timedelta(days=1)
    reach: timedelta = timedelta()

    def erasures(self, day: datetime, *, rewritten: bool = False) -> frozenset[str]:
        """The erasures that touch a partial's log day; if `rewritten`, only the erasures that the archive shows.

        An erased record may be of a shorter log day within the partial's, if log days have become longer since.
        """
        return frozenset(
            each.erasure
            for each in self.days
            if each.log_day < day + self.length
            and day < each.log_day + self.length + self.reach
            and (each.is_rewritten or not rewritten)
        )

    def are_in(self, partial: PartialRange) -> bool:
        """Whether the partial was made after all erasures that touch it."""
        return self.erasures(partial.day) <= partial.erasures


@dataclass(frozen=True)
class PartialSelection:
    """The range [0, V) as partials and record ranges, without gaps or overlaps."""

    partials: Sequence[PartialRange]
    records: Sequence[Range]


def select_partials(partials: Iterable[PartialRange], positions: Positions) -> PartialSelection:
    """Select non-overlapping partials below `positions`, oldest first, and the ranges that the partials leave out."""
    covered: dict[tuple[str, int], list[Range]] = {place: [] for place in positions.partitions()}
    selected = []
    for partial in sorted(partials, key=lambda p: p.day):
        partial.end.require_same_topics(positions)
        ranges = partial.offset_ranges
        if positions.covers(partial.end) and not any(_overlaps(r, covered[r.topic, r.partition]) for r in ranges):
            selected.append(partial)
            for each in ranges:
                covered[each.topic, each.partition].append(each)
    records = [r for (t, p), taken in covered.items() for r in _gaps(taken, Range(t, p, 0, positions.at(t, p)))]
    return PartialSelection(selected, records)


def _overlaps(one: Range, others: Iterable[Range]) -> bool:
    return any(one.start < other.end and other.start < one.end for other in others)


def _gaps(taken: Iterable[Range], whole: Range) -> list[Range]:
    """The parts of `whole` that are not taken."""
    gaps, start = [], whole.start
    for each in sorted(taken, key=lambda r: r.start):
        gaps.append(Range(whole.topic, whole.partition, start, each.start))
        start = each.end
    gaps.append(Range(whole.topic, whole.partition, start, whole.end))
    return [each for each in gaps if each.start < each.end]
