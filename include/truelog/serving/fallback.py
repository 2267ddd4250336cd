"""Fallbacks: views rebuilt at the archive's positions, for readers of a stream that is down, stalled or wrong.

A fallback is stored in `batch.<table>`. `sql/layer.sql` decides when readers get the fallback, and `fallback_policy`
decides which views need one. A fallback is stored only if it improves what readers see. This condition is checked again
once no merge can intervene.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import psycopg

from truelog.archive.archive_table import archived_positions
from truelog.batch.batch_context import open_batch
from truelog.batch.rebuild import Rebuilder
from truelog.control import application
from truelog.control.application import ARCHIVE
from truelog.kernel import merge, stage, table
from truelog.kernel.stage import StagedRows
from truelog.log.positions import Positions
from truelog.serving import fallback_policy
from truelog.storage.database import Connection, connect
from truelog.support.errors import CodeChanged, NotMade
from truelog.support.settings import Settings
from truelog.views.compiled_view import CompiledView

log = logging.getLogger("truelog.answer")


@dataclass(frozen=True)
class FallbackOutcome:
    """The positions of new fallbacks, the views for which the archive has nothing new, and errors by view."""

    made: dict[str, Positions] = field(default_factory=dict)
    nothing_new: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """The stable format for scripts."""
        made = {view: at.plain() for view, at in self.made.items()}
        return {"made": made, "nothing_new": self.nothing_new, "refused": self.refused, "failed": self.failed}


def build_fallbacks(settings: Settings, views: Sequence[str]) -> FallbackOutcome:
    """Build fallbacks for these views in a separate Spark session; an error in one view does not stop the others."""
    files = application.source_digest(settings)  # before the files are read
    with open_batch(settings, "truelog answer", views) as context:
        outcome = FallbackOutcome(refused=dict(context.views.refused))
        for each in context.views.compiled:
            try:
                with connect(settings, autocommit=True) as connection:
                    made = build_fallback(Rebuilder(context, connection, each))
                if made is None:
                    outcome.nothing_new.append(each.name)
                else:
                    outcome.made[each.name] = made
            except (CodeChanged, NotMade) as error:
                outcome.refused[each.name] = str(error)
            except Exception as error:  # an error in one view must not stop the others
                log.exception("%s: building the fallback failed", each.name)
                outcome.failed[each.name] = f"{type(error).__name__}: {error}"
    with connect(settings) as connection:
        _record_refusals(connection, outcome, files)
    return outcome


def build_fallback(rebuilder: Rebuilder) -> Positions | None:
    """Store a rebuild at the archive's positions as the view's fallback; None if it would not improve what readers see.

    Raises:
        CodeChanged: the view's code is not the code that made its table.
        NotMade: the view has no table.
    """
    connection, compiled = rebuilder.connection, rebuilder.compiled
    table.require_same_code(connection, compiled)
    as_of = _archived_until(connection, compiled)
    archived = archived_positions(rebuilder.context.settings, compiled.view.topics)
    if not _improves(connection, compiled, archived):
        return None
    staged = rebuilder.exclude_and_retry(
        lambda: rebuilder.countable_events(merge.positions(connection, compiled), archived),
        lambda: rebuilder.stage_rows(archived),
    )
    with connection.transaction():
        now = _replace(rebuilder, archived, staged)
        merge.lock(connection, compiled)
        if not _improves(connection, compiled, archived):
            raise psycopg.Rollback
        _record(connection, compiled, archived, as_of, now)
        return archived
    stage.clear(connection, compiled, staged)
    return None


def _improves(connection: Connection, compiled: CompiledView, archived: Positions) -> bool:
    view = compiled.name, compiled.view.version
    return fallback_policy.improves(
        archived,
        fallback_policy.served_positions(connection, *view),
        quarantined=fallback_policy.is_quarantined(connection, *view),
    )


def _replace(rebuilder: Rebuilder, archived: Positions, staged: StagedRows) -> datetime | None:
    """Replace the fallback's rows, and return the log's clock at these positions."""
    connection, compiled = rebuilder.connection, rebuilder.compiled
    tables = [each.table for each in compiled.tables]
    fallback_policy.lock_fallback(connection, tables)
    fallback_policy.empty_fallback(connection, tables)
    rebuilder.merge_staged("batch", staged)
    return merge.drop_expired(connection, compiled, "batch", archived)


def _record(
    connection: Connection,
    compiled: CompiledView,
    archived: Positions,
    as_of: datetime | None,
    now: datetime | None,
) -> None:
    """Record the fallback: its positions, the time up to which it covers the log, and the log's clock."""
    view = compiled.name, compiled.view.version
    connection.execute("DELETE FROM truelog.batch_answer WHERE (view, version) = (%s, %s)", view)
    connection.execute(
        "INSERT INTO truelog.batch_answer (view, version, as_of, clock) VALUES (%s, %s, %s, %s)", (*view, as_of, now)
    )
    with connection.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO truelog.batch_position (view, version, topic, partition, topic_id, next_offset) "
            "VALUES (%s, %s, %s, %s, %s, %s)",
            [(*view, topic, p, archived.ids[topic], archived.at(topic, p)) for topic, p in archived.partitions()],
        )


def _archived_until(connection: Connection, compiled: CompiledView) -> datetime | None:
    """The time up to which the archive has the log of the view's topics, or None if the archive was never polled."""
    query = "SELECT truelog.complete_until(%s, 0, %s)"
    found = connection.execute(query, (ARCHIVE, list(compiled.view.reads))).fetchone()
    assert found is not None  # noqa: S101
    assert found[0] is None or isinstance(found[0], datetime)  # noqa: S101
    return found[0]


def _record_refusals(connection: Connection, outcome: FallbackOutcome, files: str) -> None:
    """Record the refused views, which are not tried again until their files change."""
    with connection.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO truelog.batch_refusal (view, files, reason) VALUES (%s, %s, %s) "
            "ON CONFLICT (view) DO UPDATE SET files = excluded.files, reason = excluded.reason, at = now()",
            [(view, files, reason) for view, reason in outcome.refused.items()],
        )
