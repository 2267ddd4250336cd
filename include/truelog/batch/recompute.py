"""Recomputes the partials of views for log days, from the archive.

A recompute replaces the existing partial, so a backfill over any range of days recomputes history.
"""

import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from truelog.archive import reader as archive_reader
from truelog.batch import partials
from truelog.batch.batch_context import BatchContext, each_alone, for_records, open_batch
from truelog.batch.partial_selection import PartialRange
from truelog.batch.rebuild import Rebuilder
from truelog.batch.recomputation import Recomputation
from truelog.spark.early import records_read
from truelog.storage.database import connect
from truelog.support.errors import TruelogError, describe
from truelog.tables import deploy as table
from truelog.tables import kinds
from truelog.tables.compiled_view import CompiledView

log = logging.getLogger("truelog.recompute")


@dataclass(frozen=True)
class Recomputed:
    """A new partial: the view, the records that it covers, and the number of its keys."""

    view: str
    covered: PartialRange
    rows: int

    def as_dict(self) -> dict[str, Any]:
        """The stable format for scripts."""
        return {
            "view": self.view,
            "day": self.covered.day.isoformat(),
            "begin": json.loads(self.covered.begin.as_json()),
            "end": json.loads(self.covered.end.as_json()),
            "rows": self.rows,
        }


@dataclass(frozen=True)
class RecomputeOutcome:
    """The new partials, and the reason why each other view lacks some: a broken file, changed code or an error."""

    done: list[Recomputed] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """The stable format for scripts."""
        return {"views": [each.as_dict() for each in self.done], "refused": self.refused}


def recompute(context: BatchContext, compiled: CompiledView, day: datetime, *, unfinished: bool = False) -> Recomputed:
    """Make the view's partial for a log day. If `unfinished` is true, an open day is covered as far as it is archived.

    Raises:
        ArchiveBehind: the day is not closed, or has not begun.
        CodeChanged: other code of the same version made the view's tables.
    """
    settings = context.settings
    begin, end = archive_reader.day_range(settings, compiled.view.topics, day, unfinished=unfinished)
    with connect(settings, autocommit=True) as connection:
        table.deploy_table(connection, compiled)
        rebuilder = Rebuilder(context, connection, compiled)
        covered = PartialRange(day, begin, end, rebuilder.readings)
        keys = rebuilder.exclude_and_retry(
            end, lambda: rebuilder.countable_events(begin, end), lambda: _replace_partials(rebuilder, covered)
        )
    return Recomputed(compiled.name, covered, keys)


def _replace_partials(rebuilder: Rebuilder, covered: PartialRange) -> int:
    """Replace the log day's partial of each table to which events are added, and return the keys of the first."""
    context, keys = rebuilder.context, list[int]()
    for each in kinds.daily(rebuilder.compiled):
        topics, readings = each.view.topics, rebuilder.readings_of(each)
        erased = partials.touched_days(context.settings, each).erasures(covered.day, rewritten=True)  # before reading
        own = PartialRange(covered.day, covered.begin.only(topics), covered.end.only(topics), readings, erased)
        states = rebuilder.states_between(each, own.begin, own.end)
        keys.append(partials.replace(context.spark, context.settings, each, own, states))
    return keys[0]


def recompute_all(
    recomputation: Recomputation,
    views: Sequence[str],
    days: Sequence[datetime],
    *,
    unfinished: bool = False,
    report: Callable[[Recomputed], None] = lambda made: None,
) -> RecomputeOutcome:
    """Recompute these days for the named views, or for all views, in a separate Spark session.

    A view that fails ends at the day that fails, and does not hold up the others. `report` gets each new partial.
    """
    with open_batch(recomputation.settings, "truelog recompute", views) as context:
        refused = context.views.refused
        recomputation.plan([*(each.name for each in context.views.compiled), *refused], days)
        for view in refused:
            recomputation.refuse(view)
        return recompute_views(context, recomputation, days, report, unfinished=unfinished)


def recompute_views(
    context: BatchContext,
    recomputation: Recomputation,
    days: Sequence[datetime],
    report: Callable[[Recomputed], None],
    *,
    unfinished: bool,
) -> RecomputeOutcome:
    """Recompute these days for the views of the context, the days of a view in order."""
    done, refused = list[Recomputed](), dict(context.views.refused)

    def recompute_days(view: CompiledView) -> None:
        for day in days:
            recomputation.start(view.name, day)
            made = recompute(within, view, day, unfinished=unfinished)
            recomputation.finish(view.name, day, made.rows)
            done.append(made)
            report(made)

    def refuse(view: CompiledView, error: Exception) -> None:
        if not isinstance(error, TruelogError):
            log.exception("%s could not be recomputed", view.name)
        recomputation.refuse(view.name)
        refused[view.name] = describe(error)

    with for_records(context, records_read(context.settings)) as within:
        each_alone(within, recompute_days, refuse)
    return RecomputeOutcome(sorted(done, key=lambda made: (made.view, made.covered.day)), refused)
