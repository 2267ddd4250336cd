"""Recomputes the partials of views for log days, from the archive.

A recompute replaces the existing partial, so a backfill over any range of days recomputes history.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from truelog.archive import archive_reader
from truelog.batch import partials
from truelog.batch.batch_context import BatchContext, open_batch
from truelog.batch.partial_selection import PartialRange
from truelog.batch.rebuild import Rebuilder
from truelog.kernel import table
from truelog.storage.database import connect
from truelog.support.errors import CodeChanged
from truelog.support.settings import Settings
from truelog.views.compiled_view import CompiledView


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
    """The new partials, and the reason why each refused view has none: a broken file or changed code."""

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
            lambda: rebuilder.countable_events(begin, end),
            lambda: partials.replace(context.spark, settings, compiled, covered, rebuilder.states_between(begin, end)),
        )
    return Recomputed(compiled.name, covered, keys)


def recompute_all(
    settings: Settings, views: Sequence[str], days: Sequence[datetime], *, unfinished: bool = False
) -> RecomputeOutcome:
    """Recompute these days for the named views, or for all views, in a separate Spark session."""
    with open_batch(settings, "truelog recompute", views) as context:
        outcome = RecomputeOutcome(refused=dict(context.views.refused))
        for each in context.views.compiled:
            try:
                outcome.done.extend(recompute(context, each, day, unfinished=unfinished) for day in days)
            except CodeChanged as changed:
                outcome.refused[each.name] = str(changed)
    return outcome
