"""Recomputes the partials of views for log days, from the archive.

A recompute replaces the existing partial, so a backfill over any range of days recomputes history.
"""

import json
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from truelog.archive import reader as archive_reader
from truelog.batch import partials
from truelog.batch.batch_context import BatchContext, open_batch
from truelog.batch.partial_selection import PartialRange
from truelog.batch.rebuild import Rebuilder
from truelog.batch.recomputation import Recomputation
from truelog.storage.database import connect
from truelog.support.errors import TruelogError
from truelog.tables import deploy as table
from truelog.tables.compiled_view import CompiledView

_AT_ONCE = 4  # views that are recomputed side by side; one alone leaves cores idle while it plans and commits

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
            lambda: rebuilder.countable_events(begin, end), lambda: _replace_partials(rebuilder, covered)
        )
    return Recomputed(compiled.name, covered, keys)


def _replace_partials(rebuilder: Rebuilder, covered: PartialRange) -> int:
    """Replace the log day's partial of each table to which events are added, and return the keys of the first."""
    context, keys = rebuilder.context, list[int]()
    for each in rebuilder.compiled.daily:
        of_table, topics = rebuilder.of_table(each), each.view.topics
        own = PartialRange(covered.day, covered.begin.only(topics), covered.end.only(topics), of_table.readings)
        states = of_table.states_between(own.begin, own.end)
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

    Views are recomputed side by side. A view that fails does not hold up the others. `report` gets each new partial.
    """
    settings = recomputation.settings
    with open_batch(settings, "truelog recompute", views) as context:
        compiled, refused = context.views.compiled, dict(context.views.refused)
        recomputation.plan([*(each.name for each in compiled), *refused], days)
        for view in refused:
            recomputation.refuse(view)
        each_alone = _Alone(context, recomputation, days, unfinished, report)
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            reasons = list(pool.map(each_alone.recompute, compiled))
    refused |= {view.name: reason for view, reason in zip(compiled, reasons, strict=True) if reason}
    return RecomputeOutcome(sorted(each_alone.done, key=lambda made: (made.view, made.covered.day)), refused)


@dataclass(frozen=True)
class _Alone:
    """Recomputes each view in a thread and a pool of Spark's scheduler of its own."""

    context: BatchContext
    recomputation: Recomputation
    days: Sequence[datetime]
    unfinished: bool
    report: Callable[[Recomputed], None]
    done: list[Recomputed] = field(default_factory=list)

    def recompute(self, view: CompiledView) -> str | None:
        """Recompute the view's days in order. Returns the reason if a day fails; the view ends there."""
        self.context.spark.sparkContext.setLocalProperty("spark.scheduler.pool", view.name)
        try:
            for day in self.days:
                self.recomputation.start(view.name, day)
                made = recompute(self.context, view, day, unfinished=self.unfinished)
                self.recomputation.finish(view.name, day, made.rows)
                self.done.append(made)
                self.report(made)
        except Exception as error:
            if not isinstance(error, TruelogError):
                log.exception("%s could not be recomputed", view.name)
            self.recomputation.refuse(view.name)
            return str(error) if isinstance(error, TruelogError) else f"{type(error).__name__}: {error}"
        return None
