"""Revised text: a text that follows from edits, as a state of `Steps` in native Spark expressions.

The number of edits is the revision of the text. An edit may name the revision that it was made on, and is then
transformed over the edits since that revision (`edit.py`). An edit that is refused changes nothing, and it makes a
revision too. The state contains what the last edits changed, because a later edit may be transformed over them.

An edit is a struct of `base_revision`, `position`, `removed`, `unit`, `inserted` and `edited_at`. A position beyond the
end means the end.
"""

from collections.abc import Callable

from pyspark.sql import Column
from pyspark.sql import functions as F

from truelog.text import edit_columns, utf16_columns
from truelog.text.edit import MOST_CHANGES, MOST_RANGES
from truelog.text.edit_columns import with_value

CODE_POINTS, UTF16 = "code_points", "utf16"  # the units of an edit
# The changes that the last edits made, as lists of numbers, because a table has no lists of structs.
CHANGES = ("recent_revisions", "recent_places", "recent_sizes", "recent_utf16_places", "recent_utf16_sizes")


def initial() -> Column:
    """The state before the first edit."""
    none, nothing = F.lit(0), F.lit(None).cast("string")
    numbers = [F.array().cast("array<int>").alias(name) for name in CHANGES]
    return F.struct(
        F.lit("").alias("text"),
        none.alias("characters"),
        none.alias("utf16_units"),
        none.alias("edits"),
        F.lit(None).cast("timestamp").alias("edited_at"),
        nothing.alias("refused"),
        F.array().cast("array<string>").alias("recent_refusals"),
        *numbers,
    )


def step(every: int, longest: int) -> Callable[[Column, Column], Column]:
    """The function from a state and an edit to the state after the edit.

    every: for how many edits the state has the changes. An edit may be so many revisions behind.
    longest: the characters of a text, at most.
    """

    def after(document: Column, edit: Column) -> Column:
        inserted = F.length(edit["inserted"]).cast("bigint")

        def placed(own: Column) -> Column:
            wanted = edit_columns.changes_of(_in_code_points(document, edit, own), inserted)
            return with_value(wanted, lambda changes: judged(own, changes))

        def judged(own: Column, wanted: Column) -> Column:
            is_too_long = document["characters"] + _total(wanted["size"]) > longest
            too_long = F.when(is_too_long, f"the text would have more than {longest} characters")
            refused = F.coalesce(_refusal(document, edit, own, every), too_long)
            return with_value(refused, lambda reason: applied(reason, wanted))

        def applied(reason: Column, wanted: Column) -> Column:
            changes = F.when(reason.isNull(), wanted).otherwise(F.array().cast(edit_columns.NO_CHANGES))
            applied_changes = _applied(document, edit, changes)
            return with_value(applied_changes, lambda done: _next(document, edit, reason, done, every))

        return with_value(_transformed(document, edit), placed)

    return after


def _transformed(document: Column, edit: Column) -> Column:
    """The edit in its own unit, after the edits since the revision that it was made on, within the text."""
    is_utf16 = edit["unit"] == UTF16
    places = F.when(is_utf16, document["recent_utf16_places"]).otherwise(document["recent_places"])
    sizes = F.when(is_utf16, document["recent_utf16_sizes"]).otherwise(document["recent_sizes"])
    length = F.when(is_utf16, document["utf16_units"]).otherwise(document["characters"]).cast("bigint")
    asked = edit_columns.edit_at(edit["position"], edit["removed"])

    def changes(count: Column) -> Column:
        first = F.size(document["recent_revisions"]) - count + 1
        last = [F.slice(each, first, count).cast("array<bigint>") for each in (places, sizes)]
        return F.zip_with(last[0], last[1], edit_columns.change_of)

    since = F.size(F.filter(document["recent_revisions"], lambda each: each > edit["base_revision"]))
    after = with_value(since, lambda count: edit_columns.after(asked, changes(count)))
    moved = F.when(edit["base_revision"] < document["edits"], after).otherwise(asked)
    return with_value(moved, lambda each: edit_columns.within(each, length))


def _is_wide(document: Column, edit: Column) -> Column:
    """Whether the edit counts other units than code points, and the text has characters that differ in them."""
    return (edit["unit"] == UTF16) & (document["utf16_units"] > document["characters"])


def _in_code_points(document: Column, edit: Column, own: Column) -> Column:
    """The edit `own`, which counts in its own unit, in code points."""

    def converted(text: Column) -> Column:
        return edit_columns.moved(own, lambda at: utf16_columns.code_points(text, at))

    wide = with_value(utf16_columns.encoded(document["text"]), converted)
    return F.when(_is_wide(document, edit), wide).otherwise(own)


def _splits_pair(document: Column, edit: Column, own: Column) -> Column:
    """Whether a place of the edit is within a surrogate pair."""

    def splits(text: Column) -> Column:
        return F.exists(edit_columns.places_of(own), lambda at: utf16_columns.splits_pair(text, at))

    wide = with_value(utf16_columns.encoded(document["text"]), splits)
    return F.when(_is_wide(document, edit), wide).otherwise(False)


def _refusal(document: Column, edit: Column, own: Column, every: int) -> Column:
    """Why an edit is refused, however long the text is; NULL if it is not.

    An edit on a later revision is on the present one: an erased edit no longer counts as a revision.
    """
    base, now = edit["base_revision"], document["edits"]
    behind = F.lit(f", but an edit may be at most {every} behind, and the document is at ")
    too_old = F.concat(F.lit("it was made on revision "), base.cast("string"), behind, now.cast("string"))
    return (
        F.when(base < now - every, too_old)
        .when(edit_columns.is_scattered(own), f"other edits cut what it removes into more than {MOST_RANGES} parts")
        .when(_splits_pair(document, edit, own), "its position or its end is within a surrogate pair")
    )


def _applied(document: Column, edit: Column, changes: Column) -> Column:
    """The text after the changes, and the changes in code points and in UTF-16 units."""
    text, inserted = document["text"], edit["inserted"]
    is_wide = (document["utf16_units"] > document["characters"]) | (utf16_columns.units(inserted) > F.length(inserted))
    none = F.array().cast(edit_columns.NO_CHANGES)

    def apply(done: Column, change: Column) -> Column:
        place, size = change["place"].cast("int"), change["size"].cast("int")
        start, removed = F.substring(done["text"], F.lit(1), place), F.greatest(-size, F.lit(0))
        rest = F.substring(done["text"], place + removed + 1, F.length(done["text"]))
        gone = F.substring(done["text"], place + 1, removed)
        wide_size = F.when(size > 0, utf16_columns.units(inserted)).otherwise(-utf16_columns.units(gone))
        wide = edit_columns.change_of(utf16_columns.units(start), wide_size)
        return F.struct(
            F.concat(start, F.when(size > 0, inserted).otherwise(""), rest).alias("text"),
            F.concat(done["utf16"], F.array(F.when(is_wide, wide).otherwise(change))).alias("utf16"),
        )

    done = F.aggregate(changes, F.struct(text.alias("text"), none.alias("utf16")), apply)
    return with_value(
        done,
        lambda each: F.struct(each["text"].alias("text"), changes.alias("changes"), each["utf16"].alias("utf16")),
    )


def _next(document: Column, edit: Column, reason: Column, done: Column, every: int) -> Column:
    """The state after the edit."""
    number, revisions, refusals = document["edits"] + 1, document["recent_revisions"], document["recent_refusals"]
    made = F.array_repeat(number, F.size(done["changes"]))
    new = (made, done["changes"]["place"], done["changes"]["size"], done["utf16"]["place"], done["utf16"]["size"])
    oldest = F.slice(revisions, 1, MOST_CHANGES)  # each edit forgets the changes of one earlier edit
    forgotten = F.size(F.filter(oldest, lambda each: each <= number - every))

    def state(begin: Column) -> Column:
        kept = (F.slice(document[name], begin + 1, F.size(revisions)) for name in CHANGES)
        recent = (F.concat(old, each.cast("array<int>")) for old, each in zip(kept, new, strict=True))
        last = F.slice(refusals, F.greatest(F.size(refusals) - every + 2, F.lit(1)), F.lit(every))
        return F.struct(
            done["text"].alias("text"),
            (document["characters"] + _total(done["changes"]["size"])).cast("int").alias("characters"),
            (document["utf16_units"] + _total(done["utf16"]["size"])).cast("int").alias("utf16_units"),
            number.alias("edits"),
            edit["edited_at"].alias("edited_at"),
            reason.alias("refused"),
            F.concat(last, F.array(F.coalesce(reason, F.lit("")))).alias("recent_refusals"),
            *(each.alias(name) for name, each in zip(CHANGES, recent, strict=True)),
        )

    return with_value(forgotten, state)


def _total(numbers: Column) -> Column:
    return F.aggregate(numbers, F.lit(0).cast("bigint"), lambda total, each: total + each)
