"""Judges the history of a topic again, by the newest version of its event type, from the first offset on.

1. Begin another reading in the registry. From now on, every process refuses the old reading, loads the new one, and
   leaves the views that still have the old reading at their positions.
2. Rebuild each view of the topic, and each version that runs beside the declared one, at its positions, from the
   archive under the new reading.
3. Replace the view's rows and record its reading, in one transaction that holds the view's merge lock.

A crash leaves some views under the old reading, and running the command again rebuilds these. Partials and typed
columns that were made under the old reading are not used; the rows' raw bytes are decoded instead.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from psycopg import sql

from truelog.archive import reader as archive_reader
from truelog.batch import answer
from truelog.batch.batch_context import load_beside, open_batch
from truelog.batch.rebuild import Rebuilder
from truelog.control import event_registry
from truelog.erasure import ledger
from truelog.kernel import merge
from truelog.kernel.merge import Merge
from truelog.log.positions import Positions
from truelog.storage import audit_trail
from truelog.storage.audit_trail import OperationKind
from truelog.storage.database import allow_pauses, connect
from truelog.support import faults
from truelog.support.errors import CodeChanged, MeaningChanged, NotMade, Stale
from truelog.support.settings import Settings
from truelog.tables import deploy as table
from truelog.tables.output import outbox
from truelog.tables.stage import StagedRows


@dataclass(frozen=True)
class Rejudged:
    """The new reading of the topic, the views rebuilt under it, and the views that could not be rebuilt.

    A version that runs beside the declared version is named `VIEW version NUMBER`.
    """

    event: str
    reading: int
    version: int
    rebuilt: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """The stable format for scripts."""
        return dict(vars(self))


def rejudge(settings: Settings, event: str, report: Callable[[str], None], doer: str) -> Rejudged:
    """Judge the topic again and rebuild its views. `report` receives a line for each step.

    Raises:
        BadInput: there is no such event type.
        ArchiveBehind: the archive did not reach a view's positions in time. Run the command again.
    """
    newest = event_registry.begin_reading(settings, event)  # 1
    report(f"{event}: version {newest.version} judges all records in reading {newest.reading}")
    result = Rejudged(event, newest.reading, newest.version)
    with open_batch(settings, "truelog rejudge", ()) as context, connect(settings, autocommit=True) as connection:
        about = f"reading {newest.reading}, version {newest.version}"
        audit_trail.record_operation(connection, OperationKind.REJUDGE, event, doer, about)
        result.refused.update(context.views.refused)
        beside = load_beside(context)
        rebuilders = [Rebuilder(context, connection, each) for each in (*context.views.compiled, *beside)]
        for rebuilder in _under_another_reading(rebuilders, event):
            compiled = rebuilder.compiled
            view = f"{compiled.name} version {compiled.view.version}" if compiled in beside else compiled.name
            report(f"{view}: rebuilding")
            try:
                rebuild_under_reading(rebuilder)
            except (CodeChanged, NotMade) as error:
                result.refused[view] = str(error)
                continue
            result.rebuilt.append(view)
            report(f"{view}: rebuilt")
    return result


def _under_another_reading(rebuilders: Iterable[Rebuilder], event: str) -> Iterator[Rebuilder]:
    for each in rebuilders:
        if event not in each.compiled.view.topics:
            continue
        try:
            each.require_reading()
        except MeaningChanged:
            yield each


def rebuild_under_reading(rebuilder: Rebuilder) -> None:
    """Replace the view by its rebuild under the rebuilder's readings, at the view's positions.

    A batch-only view is built at the archive's positions instead.

    Raises:
        Stale: the view has advanced, or an erasure has changed the archive, since the rebuild began.
    """
    connection, compiled, settings = rebuilder.connection, rebuilder.compiled, rebuilder.context.settings
    if compiled.view.batch_only:
        answer.build_answer(rebuilder, partial(answer.is_at_or_past, rebuilder))
        return
    table.require_same_code(connection, compiled)
    positions = merge.positions(connection, compiled)
    archive_reader.wait_for(settings, positions, seconds=settings.archive_wait_seconds)
    erasures = ledger.rewritten(connection)
    staged = rebuilder.exclude_and_retry(  # 2
        positions,
        lambda: rebuilder.countable_events(Positions(), positions),
        lambda: rebuilder.stage_rows(positions),
    )
    with connection.transaction():
        allow_pauses(connection)
        merge.lock(connection, compiled)  # 3
        faults.reach("rejudge.locked")
        final = merge.positions(connection, compiled)
        merge.require_erased(connection, compiled, Merge(Positions(), final, staged, erasures=erasures))
        staged_rows = [staged, *_merged_since(rebuilder, positions, final)]
        for each in compiled.tables:
            connection.execute(sql.SQL("DELETE FROM {}").format(sql.Identifier("state", each.name)))
        for rows in staged_rows:
            rebuilder.merge_staged("state", rows)
        merge.drop_expired(connection, compiled, "state", final, merge.stored_clock(connection, compiled, final))
        outbox.record_changes(connection, compiled)
        rebuilder.exclusions(final).drop_earlier()
        _record_readings(rebuilder)
        merge.record_repair(connection, compiled)  # a batch may have used rows of the former reading
        faults.reach("rejudge.before_commit")


def _merged_since(rebuilder: Rebuilder, positions: Positions, final: Positions) -> list[StagedRows]:
    """What a process that had not noticed the new reading yet has merged since the view was rebuilt."""
    if not positions.ranges_to(final):
        return []
    if rebuilder.compiled.own.follows_from:
        raise Stale(f"{rebuilder.compiled.name} has advanced while it was rebuilt. Run the command again.")
    return [rebuilder.stage_since(positions, final)]


def _record_readings(rebuilder: Rebuilder) -> None:
    compiled = rebuilder.compiled
    with rebuilder.connection.cursor() as cursor:
        cursor.executemany(
            "UPDATE truelog.position SET reading = %s WHERE view = %s AND version = %s AND topic = %s",
            [
                (rebuilder.readings.get(topic, 0), compiled.name, compiled.view.version, topic)
                for topic in compiled.view.topics
            ],
        )
