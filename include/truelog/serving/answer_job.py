"""A batch job that builds the batch answers of some views, and records the views that cannot be rebuilt."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from truelog.batch.batch_context import BatchContext, each_alone, open_batch
from truelog.batch.rebuild import Rebuilder
from truelog.control import application, view_versions
from truelog.control.view_loader import LoadedViews, load_stored
from truelog.lineage.job import Catalogue
from truelog.lineage.run import batch_run
from truelog.log.positions import Positions
from truelog.storage.database import Connection, connect, storable
from truelog.support.errors import CodeChanged, NotMade, PartitionsAdded
from truelog.support.settings import Settings
from truelog.tables.compiled_view import CompiledView

log = logging.getLogger("truelog.answer")


@dataclass(frozen=True)
class AnswerOutcome:
    """The positions of new answers, the views for which the archive has nothing new, and errors by view."""

    made: dict[str, Positions] = field(default_factory=dict)
    nothing_new: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """The stable format for scripts."""
        made = {view: at.plain() for view, at in self.made.items()}
        return {"made": made, "nothing_new": self.nothing_new, "refused": self.refused, "failed": self.failed}


def build_each(
    settings: Settings, views: Sequence[str], build: Callable[[Rebuilder], Positions | None]
) -> AnswerOutcome:
    """Build answers for these views in a separate Spark session; an error in one view does not stop the others."""
    files = application.source_digest(settings)  # before the files are read
    with open_batch(settings, "truelog answer", views) as loaded:
        context = replace(loaded, views=_as_readers_see(loaded))
        outcome = AnswerOutcome(refused=dict(context.views.refused))
        catalogue = Catalogue(settings, context.spark, context.event_types)

        def build_one(view: CompiledView) -> None:
            job = partial(catalogue.rebuild, view)
            with connect(settings, autocommit=True) as connection, batch_run(settings, job):
                made = build(Rebuilder(context, connection, view))
            if made is None:
                outcome.nothing_new.append(view.name)
            else:
                outcome.made[view.name] = made

        def failed(view: CompiledView, error: Exception) -> None:
            if isinstance(error, CodeChanged | NotMade | PartitionsAdded):  # they last until a file changes
                outcome.refused[view.name] = str(error)
                return
            log.exception("%s: building the answer failed", view.name)
            outcome.failed[view.name] = f"{type(error).__name__}: {error}"

        each_alone(context, build_one, failed, at_once=1)
    with connect(settings) as connection:
        _record_refusals(connection, outcome, files)
    return outcome


def _as_readers_see(context: BatchContext) -> LoadedViews:
    """The views, with the version that readers see instead of the declared one."""
    views = context.views
    names = [each.name for each in views.compiled]
    with connect(context.settings) as connection:
        served = view_versions.served_beside(connection, names)
        stored = view_versions.stored(connection, served)
    compiled, refused = load_stored(context.spark, context.settings, context.event_types, stored)
    others = [each for each in views.compiled if each.name not in {view for view, _ in served}]
    return LoadedViews([*others, *compiled], views.refused | {each.view: why for each, why in refused.items()})


def _record_refusals(connection: Connection, outcome: AnswerOutcome, files: str) -> None:
    """Record the refused views. A view that needs a fallback is not tried again until its files change."""
    built = [*outcome.made, *outcome.nothing_new]
    connection.execute("DELETE FROM truelog.batch_refusal WHERE view = ANY(%s)", (built,))
    with connection.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO truelog.batch_refusal (view, files, reason) VALUES (%s, %s, %s) "
            "ON CONFLICT (view) DO UPDATE SET files = excluded.files, reason = excluded.reason, at = now()",
            [(view, files, storable(reason)) for view, reason in outcome.refused.items()],
        )
