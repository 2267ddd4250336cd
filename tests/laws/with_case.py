"""Many cases in one table: each view gets the number of the case as a part of its keys.

The events have the column `case_id`, or `case` computes the number from an event's columns. The frames that compile a
view have neither, so every event belongs to case 0 there.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F

from truelog import Group, Join, Match, View
from truelog.tables.provenance_frame import ProvenanceFrame

CASE = "case_id"


def with_case(view: View, case: Column | None = None) -> View:
    """The same view with the case as an additional key column.

    A Group has it in front of the first column of `by` instead, because its fold names the columns that it groups by.
    """
    if isinstance(view, Group):
        return replace(view, transform=_selected(view, case, _before(view.by[0])))
    if isinstance(view, Join):
        totals = {n: replace(t, key=(CASE, *t.key), counts=_of_one_case(t.counts)) for n, t in view.totals.items()}
        sides = {name: with_case(side, case) for name, side in view.sides.items()}
        return replace(view, sides=sides, totals=totals, key=(CASE, *view.key), counts=_of_one_case(view.counts))
    return replace(view, transform=_selected(view, case, lambda rows: rows), key=(CASE, *view.key))


def _selected(view: View, case: Column | None, placed: Callable[[Any], Any]) -> Callable[..., Any]:
    """The view's transform, which also selects the case."""

    def numbered(events: Any) -> Any:
        if case is None and CASE in events.columns:
            return events
        return events.withColumn(CASE, F.lit(0) if case is None else case)

    def transform(*events: Any) -> Any:
        frames: list[Any] = [ProvenanceFrame(numbered(each), (CASE,)) for each in events]
        transformed: Any = view.transform(*frames)
        return placed(transformed.frame)

    return transform


def _before(column: str) -> Callable[[Any], Any]:
    def placed(rows: Any) -> Any:
        return rows.withColumn(column, F.concat(F.col(CASE), F.lit("|"), F.col(column))).drop(CASE)

    return placed


def _of_one_case(counts: Any) -> dict[str, Match]:
    """The matches of rows of the same case."""
    return {name: match.with_key(CASE) for name, match in counts.items()}
