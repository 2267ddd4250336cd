"""Tiling: which partials a rebuild at V may use, and which records it must read beside them.

A partial that reaches past V in any partition contains V's future and is of no use. Those that remain may not overlap,
and what they leave uncovered is read from the archive, so that every record below V counts exactly once.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from truelog.log.positions import Positions, Range


@dataclass(frozen=True)
class PartialRange:
    """What a partial covers: the records [begin, end) of each partition, by the log day that it was made for."""

    day: datetime
    begin: Positions
    end: Positions

    @property
    def ranges(self) -> list[Range]:
        return self.begin.ranges_to(self.end)


@dataclass(frozen=True)
class PartialSelection:
    """[0, V) as partials and records: together they are all of it, and nothing is in two of them."""

    tiles: Sequence[PartialRange]
    records: Sequence[Range]


def select_partials(tiles: Iterable[PartialRange], positions: Positions) -> PartialSelection:
    """The partials below `positions`, oldest first, none that overlaps an older one, and the ranges between them."""
    covered: dict[tuple[str, int], list[Range]] = {place: [] for place in positions.partitions()}
    chosen = []
    for tile in sorted(tiles, key=lambda t: t.day):
        tile.end.require_same_topics(positions)
        if positions.covers(tile.end) and not any(_overlaps(r, covered[r.topic, r.partition]) for r in tile.ranges):
            chosen.append(tile)
            for each in tile.ranges:
                covered[each.topic, each.partition].append(each)
    records = [r for (t, p), taken in covered.items() for r in _between(taken, Range(t, p, 0, positions.at(t, p)))]
    return PartialSelection(chosen, records)


def _overlaps(one: Range, others: Iterable[Range]) -> bool:
    return any(one.start < other.end and other.start < one.end for other in others)


def _between(taken: Iterable[Range], whole: Range) -> list[Range]:
    """What of `whole` is not taken."""
    left, start = [], whole.start
    for each in sorted(taken, key=lambda r: r.start):
        left.append(Range(whole.topic, whole.partition, start, each.start))
        start = each.end
    left.append(Range(whole.topic, whole.partition, start, whole.end))
    return [each for each in left if each.start < each.end]
