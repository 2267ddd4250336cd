"""Batch answers: views rebuilt at the archive's positions, which readers see in place of the stream's rows.

An answer is stored in `batch.<table>`, and `sql/repeatable/views.sql` decides when readers get it. `truelog.serving`
decides which views need one. A batch-only view has no stream, so its rows are its newest answer.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime

import psycopg

from truelog.archive.table import archived_positions
from truelog.batch.rebuild import Rebuilder
from truelog.control.application import ARCHIVE
from truelog.control.view_tables import empty_answer, lock_answer
from truelog.erasure import ledger
from truelog.kernel import merge
from truelog.kernel.merge import Merge
from truelog.log.positions import Positions
from truelog.storage.database import Connection
from truelog.support import faults
from truelog.support.errors import ArchiveBehind
from truelog.tables import deploy as table
from truelog.tables import stage
from truelog.tables.compiled_view import CompiledView
from truelog.tables.shown import readable
from truelog.tables.stage import StagedRows


def build_answer(
    rebuilder: Rebuilder,
    improves: Callable[[Positions], bool],
    replacing: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> Positions | None:
    """Store a rebuild at the archive's positions as the view's answer, if that improves what readers see.

    `improves` decides that before the rebuild, and again when no merge and no other build can intervene. `replacing`
    surrounds the replacement of the rows, in the same transaction. Returns the positions; None if nothing was stored.

    Raises:
        CodeChanged, NotMade: other code made the view's table, or it has none.
        PartitionsAdded: the view depends on the order of the log, and a topic has got more partitions.
        Stale: an erasure has changed the archive since the rebuild began. Nothing was stored.
    """
    connection, compiled = rebuilder.connection, rebuilder.compiled
    table.require_same_code(connection, compiled)
    as_of, erasures = _archived_until(connection, compiled), ledger.rewritten(connection)
    archived = archived_positions(rebuilder.context.settings, compiled.view.topics)
    merge.require_same_partitions(compiled, merge.positions(connection, compiled), archived)
    if not improves(archived):
        return None
    staged = rebuilder.exclude_and_retry(
        archived,
        lambda: rebuilder.countable_events(merge.positions(connection, compiled), archived),
        lambda: rebuilder.stage_rows(archived),
    )
    now = rebuilder.now(archived)
    with connection.transaction():
        with replacing():
            _replace(rebuilder, archived, staged, now)
        faults.reach("answer.replaced")
        merge.lock(connection, compiled)
        if not improves(archived):
            raise psycopg.Rollback
        merge.require_erased(connection, compiled, Merge(Positions(), archived, staged, erasures=erasures))
        _record(rebuilder, archived, as_of, now)
        return archived
    stage.clear(connection, compiled, staged)
    return None


def is_at_or_past(rebuilder: Rebuilder, archived: Positions) -> bool:
    """Whether the archive contains all records that the rows of a batch-only view contain.

    Raises:
        TopicRecreated: the archive has another topic of the same name.
        ArchiveBehind: some of the records are missing, so a rebuild would take the readers back in time.
    """
    current = merge.positions(rebuilder.connection, rebuilder.compiled)
    archived.require_same_topics(current)
    if not archived.covers(current):
        raise ArchiveBehind(
            f"the archive is at {archived.as_json()}, behind the rows of {rebuilder.compiled.name} at "
            f"{current.as_json()}. Was it restored from a backup?"
        )
    return bool(archived.offsets)


def refresh_answer(connection: Connection, compiled: CompiledView) -> None:
    """Record that the answer still contains everything that is archived."""
    connection.execute(
        "UPDATE truelog.batch_answer SET as_of = %s, made_at = now() WHERE (view, version) = (%s, %s)",
        (_archived_until(connection, compiled), compiled.name, compiled.view.version),
    )


def _replace(rebuilder: Rebuilder, archived: Positions, staged: StagedRows, now: datetime | None) -> None:
    """Replace the answer's rows; `now` is the log's clock at these positions."""
    connection, compiled = rebuilder.connection, rebuilder.compiled
    tables = [each.name for each in compiled.tables]
    lock_answer(connection, tables)
    empty_answer(connection, tables)
    rebuilder.merge_staged("batch", staged)
    merge.drop_expired(connection, compiled, "batch", archived, now)


def _record(rebuilder: Rebuilder, archived: Positions, as_of: datetime | None, now: datetime | None) -> None:
    """Record the answer: its positions, the time up to which it covers the log, and the log's clock."""
    connection, compiled = rebuilder.connection, rebuilder.compiled
    view = compiled.name, compiled.view.version
    connection.execute("DELETE FROM truelog.batch_answer WHERE (view, version) = (%s, %s)", view)
    connection.execute(
        "INSERT INTO truelog.batch_answer (view, version, as_of, clock) VALUES (%s, %s, %s, %s)", (*view, as_of, now)
    )
    with connection.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO truelog.batch_position (view, version, topic, partition, topic_id, next_offset, reading) "
            "VALUES (%s, %s, %s, %s, %s, %s, %s)",
            [
                (*view, topic, p, archived.ids[topic], archived.at(topic, p), rebuilder.readings.get(topic, 0))
                for topic, p in archived.partitions()
            ],
        )
    if compiled.view.batch_only:
        readable.show(connection, compiled.name, compiled.view.version)


def _archived_until(connection: Connection, compiled: CompiledView) -> datetime | None:
    """The time up to which the archive has the log of the view's topics, or None if the archive was never polled."""
    query = "SELECT truelog.complete_until(%s, 0, %s)"
    found = connection.execute(query, (ARCHIVE, list(compiled.view.reads))).fetchone()
    assert found is not None  # noqa: S101
    assert found[0] is None or isinstance(found[0], datetime)  # noqa: S101
    return found[0]
