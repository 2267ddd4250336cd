"""Selection of partials: which partials a rebuild at V may use, and which records it must read in addition.

A partial that reaches past V in any partition contains records of V's future and cannot be used. The selected partials
must not overlap, and the rebuild reads the records that they leave out from the archive, so that every record below V
counts exactly once.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from truelog.log.positions import Positions, Range


@dataclass(frozen=True)
class PartialRange:
    """The log day that a partial was made for, and the records [begin, end) of each partition that it covers."""

    day: datetime
    begin: Positions
    end: Positions

    @property
    def offset_ranges(self) -> list[Range]:
        return self.begin.ranges_to(self.end)


@dataclass(frozen=True)
class PartialSelection:
    """[0, V) as partials and ranges of records, without gaps and without overlaps."""

    partials: Sequence[PartialRange]
    records: Sequence[Range]


def select_partials(partials: Iterable[PartialRange], positions: Positions) -> PartialSelection:
    """Select the partials below `positions`, oldest first, without overlaps; and the ranges that they leave out."""
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
