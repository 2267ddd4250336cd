"""Edit: a change of a text, and its transformation if another edit of the same text comes first.

Two people edit the same revision of a text, and the log puts their edits in an order. The later edit is transformed
over the earlier one: it then does to the new text what its author meant to do to the old one.

1. Inserted text is never lost. If both insert at the same place, the text of the earlier edit in the log is first.
2. A removal removes what its author saw. Text that another person inserted into the range stays, and cuts the range.
3. What both remove is removed once.

Places and sizes count in one unit, either code points or UTF-16 units. `edit_columns.py` has the same rule for Spark.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from typing import NamedTuple

MOST_RANGES = 8  # of one edit. An edit that other people's insertions cut into more ranges changes nothing
MOST_CHANGES = 1 + MOST_RANGES  # of one edit: an insertion, and a removal for each range


class Range(NamedTuple):
    """The characters from `start` up to and without `end`."""

    start: int
    end: int


class Change(NamedTuple):
    """One step of an edit: `size` characters are inserted at `place`, or removed behind it if `size` is negative."""

    place: int
    size: int


@dataclass(frozen=True)
class Edit:
    """An insertion at a place and the removal of ranges, both in the text before the edit.

    The ranges are in order and do not overlap, and none begins before the place.
    """

    place: int
    inserted: str = ""
    ranges: tuple[Range, ...] = ()

    @property
    def changes(self) -> tuple[Change, ...]:
        """The steps of the edit, one after another: the insertion, then the removals from the last one to the first."""
        size = len(self.inserted)
        removals = (Change(start + size, start - end) for start, end in reversed(self.ranges))
        return (*([Change(self.place, size)] if size else ()), *removals)


def edit_at(position: int, removed: int = 0, inserted: str = "") -> Edit:
    """The edit that replaces `removed` characters after a position by a text."""
    return Edit(position, inserted, (Range(position, position + removed),) if removed else ())


def edited(text: str, edit: Edit) -> str:
    """The text after the edit."""
    for place, size in edit.changes:
        text = text[:place] + (edit.inserted if size > 0 else "") + text[place + max(-size, 0) :]
    return text


def after(edit: Edit, changes: Iterable[Change], *, is_later: bool = True) -> Edit:
    """The edit if these changes of the same text come first.

    `is_later` says whether the edit is behind these changes in the log. It decides which text comes first if both
    insert at the same place.
    """
    return reduce(lambda moved, change: _after_change(moved, change, is_later), changes, edit)


def _after_change(edit: Edit, change: Change, is_later: bool) -> Edit:
    if change.size < 0:
        return _after_removal(edit, change.place, -change.size)
    return _after_insertion(edit, change.place, change.size, is_later)


def _after_insertion(edit: Edit, place: int, size: int, is_later: bool) -> Edit:
    is_before = place < edit.place or (place == edit.place and is_later)
    ranges = (part for each in edit.ranges for part in _cut(each, place, size))
    return Edit(edit.place + size if is_before else edit.place, edit.inserted, tuple(ranges))


def _cut(removed: Range, place: int, size: int) -> tuple[Range, ...]:
    """The parts of a range around an insertion."""
    start, end = removed
    if place <= start:
        return (Range(start + size, end + size),)
    if place >= end:
        return (removed,)
    return Range(start, place), Range(place + size, end + size)


def _after_removal(edit: Edit, place: int, size: int) -> Edit:
    def moved(at: int) -> int:
        return at - min(max(at - place, 0), size)

    ranges = (Range(moved(start), moved(end)) for start, end in edit.ranges)
    return Edit(moved(edit.place), edit.inserted, tuple(each for each in ranges if each.start < each.end))
