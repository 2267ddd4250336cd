"""Edit columns: the transformation of edits in native Spark expressions, by the rule in `edit.py`.

An edit is a struct of `place` and `ranges`, which are structs of `start` and `end`. A change is a struct of `place` and
`size`. All numbers are bigint, also in arguments. An edit with more than `MOST_RANGES` ranges is not transformed
further.
"""

from collections.abc import Callable

from pyspark.sql import Column
from pyspark.sql import functions as F

from truelog.text.edit import MOST_RANGES

NO_CHANGES = "array<struct<place: bigint, size: bigint>>"  # the type of an empty array of changes


def with_value(value: Column, use: Callable[[Column], Column]) -> Column:
    """`use(value)`. Spark computes the value once, although the result may contain it several times."""
    return F.element_at(F.transform(F.array(value), use), 1)


def edit_at(position: Column, removed: Column) -> Column:
    """The edit that removes so many characters after a position, and inserts a text there."""
    return _edit(position, _without_empty(F.array(_range(position, position + removed))))


def after(edit: Column, changes: Column) -> Column:
    """The edit if these changes, which are earlier in the log, come first."""
    return F.aggregate(changes, edit, _after_change)


def is_scattered(edit: Column) -> Column:
    """Whether insertions have cut the edit into too many ranges."""
    return F.size(edit["ranges"]) > MOST_RANGES


def moved(edit: Column, place: Callable[[Column], Column]) -> Column:
    """The edit with each of its places replaced. `place` keeps their order."""
    found = _placed(edit, place)
    return _edit(found["place"], _without_empty(found["ranges"]))


def within(edit: Column, length: Column) -> Column:
    """The edit within a text of this length. Too many ranges remain too many, also if some become empty."""

    def place(at: Column) -> Column:
        return F.least(at, length)

    return F.when(is_scattered(edit), _placed(edit, place)).otherwise(moved(edit, place))


def places_of(edit: Column) -> Column:
    """All places that the edit names."""
    return F.concat(F.array(edit["place"]), edit["ranges"]["start"], edit["ranges"]["end"])


def change_of(place: Column, size: Column) -> Column:
    """One step of an edit."""
    return F.struct(place.alias("place"), size.alias("size"))


def changes_of(edit: Column, inserted: Column) -> Column:
    """The steps of an edit, one after another. `inserted` is the size of the text that it inserts."""
    insertion = F.filter(F.array(change_of(edit["place"], inserted)), lambda each: each["size"] > 0)
    removals = F.transform(
        F.reverse(edit["ranges"]), lambda each: change_of(each["start"] + inserted, each["start"] - each["end"])
    )
    return F.concat(insertion, removals)


def _after_change(edit: Column, change: Column) -> Column:
    place, size = change["place"], change["size"]
    moved_edit = F.when(size > 0, _after_insertion(edit, place, size)).otherwise(_after_removal(edit, place, -size))
    return F.when(is_scattered(edit), edit).otherwise(moved_edit)


def _after_insertion(edit: Column, place: Column, size: Column) -> Column:
    def parts(removed: Column) -> Column:
        start, end = removed["start"], removed["end"]
        before, behind = F.array(_range(start + size, end + size)), F.array(removed)
        inside = F.array(_range(start, place), _range(place + size, end + size))
        return F.when(place <= start, before).when(place >= end, behind).otherwise(inside)

    moved_place = F.when(place <= edit["place"], edit["place"] + size).otherwise(edit["place"])
    return _edit(moved_place, F.flatten(F.transform(edit["ranges"], parts)))


def _after_removal(edit: Column, place: Column, size: Column) -> Column:
    return moved(edit, lambda at: at - F.least(F.greatest(at - place, F.lit(0).cast("bigint")), size))


def _placed(edit: Column, place: Callable[[Column], Column]) -> Column:
    ranges = F.transform(edit["ranges"], lambda each: _range(place(each["start"]), place(each["end"])))
    return _edit(place(edit["place"]), ranges)


def _without_empty(ranges: Column) -> Column:
    return F.filter(ranges, lambda each: each["start"] < each["end"])


def _edit(place: Column, ranges: Column) -> Column:
    return F.struct(place.alias("place"), ranges.alias("ranges"))


def _range(start: Column, end: Column) -> Column:
    return F.struct(start.alias("start"), end.alias("end"))
