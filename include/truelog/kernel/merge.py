"""Merge: adds a range of the log to a view's table and advances the view's positions in one transaction.

1. lock the view (its row in `truelog.view` is the merge lock)
2. compare positions: the view must be exactly where the batch begins, and must have counted the records below under
   the same reading of the event types. If it depends on the order of a key's events, no partition may be new to it.
   No erasure may cover records that the batch has read nevertheless
3. check the lease: the caller must still hold it
4. check the staged rows: they must be the rows that the executors loaded
5. add the staged rows to the table
6. drop the rows that have expired by the log's clock, and the ids that no longer have copies
7. advance the positions
8. put the changed rows into the outbox, if the view publishes them
9. record the merge in the tally
10. exclude the records on which the transform failed, unless they are too many of those in the tally
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, cast

from truelog.control import lease
from truelog.erasure import ledger
from truelog.kernel import clock, exclusions
from truelog.kernel.exclusions import Excluded, Exclusions
from truelog.log.leader_epochs import Epochs
from truelog.log.positions import Positions, Range
from truelog.storage.database import Connection
from truelog.support import faults
from truelog.support.errors import Gap, MeaningChanged, PartitionsAdded, Stale
from truelog.tables import kinds, stage
from truelog.tables.compiled_view import CompiledView
from truelog.tables.output import outbox
from truelog.tables.stage import StagedRows

_FEW = 10  # records; a request seldom has more, and events of more requests seldom have one trace
_TALLY = """
    INSERT INTO truelog.merge_tally AS t
        (view, version, merges, rows, preparing, merging, clock, records, hour, hour_records)
    VALUES (%s, %s, 1, %s, %s, extract(epoch FROM clock_timestamp() - now()), %s, %s, date_trunc('hour', now()), %s)
    ON CONFLICT (view, version) DO UPDATE SET merges = t.merges + 1, rows = t.rows + excluded.rows,
        preparing = t.preparing + excluded.preparing, merging = t.merging + excluded.merging, clock = excluded.clock,
        records = t.records + excluded.records, hour = excluded.hour,
        earlier_records = CASE t.hour WHEN excluded.hour THEN t.earlier_records
            WHEN excluded.hour - interval '1 hour' THEN t.hour_records ELSE 0 END,
        hour_records = CASE t.hour WHEN excluded.hour THEN t.hour_records ELSE 0 END + excluded.hour_records
"""

# A batch of one topic, or of ticks, leaves the positions in the other topics as they are.
_ADVANCE = """
    INSERT INTO truelog.position (view, version, topic, partition, topic_id, next_offset, reading, leader_epoch)
    SELECT %(view)s, %(version)s, n.*
    FROM unnest(%(topics)s::text[], %(partitions)s::integer[], %(ids)s::text[], %(offsets)s::bigint[],
        %(readings)s::integer[], %(epochs)s::integer[]) AS n (topic, partition, id, next_offset, reading, leader_epoch)
    WHERE NOT EXISTS (
        SELECT FROM truelog.position p
        WHERE (p.view, p.version, p.topic, p.partition) = (%(view)s, %(version)s, n.topic, n.partition)
            AND p.next_offset = n.next_offset AND p.leader_epoch IS NOT DISTINCT FROM n.leader_epoch
    )
    ON CONFLICT (view, version, topic, partition)
    DO UPDATE SET next_offset = excluded.next_offset, leader_epoch = excluded.leader_epoch, advanced_at = now()
"""


@dataclass(frozen=True)
class Merge:
    """The input of one merge: staged rows for the records in [begin, end)."""

    begin: Positions
    end: Positions
    staged: StagedRows
    excluded: Sequence[Excluded] = field(default_factory=tuple)
    prepare_seconds: float = 0.0  # time from the start of the transform until the rows were staged
    readings: Mapping[str, int] = field(default_factory=dict)  # of the topics, 0 if absent
    epochs: Epochs = field(default_factory=dict)  # the leader epochs in which the end was reached
    repairs: int | None = None  # the view's repairs before any of its rows were read; None if none were read
    erasures: frozenset[str] = frozenset()  # that the source showed when the records were read

    def records(self, compiled: CompiledView) -> int:
        """The number of records that the view reads in this merge, counted by their offsets."""
        end = self.end.only(compiled.view.reads)
        return self.begin.only(compiled.view.reads).records_to(end)

    def few_records(self, compiled: CompiledView) -> list[Range]:
        """The records of the merge, or none if they are many."""
        begin, end = self.begin.only(compiled.view.topics), self.end.only(compiled.view.topics)
        return begin.ranges_to(end) if begin.records_to(end) <= _FEW else []


def apply(connection: Connection, compiled: CompiledView, merge: Merge, holder: lease.Holder | None = None) -> None:
    """Merge in one transaction, which writes everything or nothing.

    Raises:
        Stale: the view is past the beginning of the batch (a replay, or a process that should have exited), or it was
            repaired while rows were computed from those in its tables, or the batch may have erased records.
        MeaningChanged: the view has counted its records under another reading.
        PartitionsAdded: the view depends on the order of the log, and the batch has a partition that is new to it.
        Gap: the view is before the beginning of the batch (perhaps after a restore); a merge would skip records.
        Fenced: another process holds the application's lease.
        StagingTorn: staged rows were lost; repeat the batch.
        TooManyExcluded: the transform has failed on too many records lately.
    """
    with connection.transaction():
        lock(connection, compiled)  # 1
        reached = require_at(connection, compiled, merge.begin)  # 2
        require_same_partitions(compiled, reached, merge.end)
        require_reading(connection, compiled, merge.readings)
        _require_unrepaired(connection, compiled, merge.repairs)
        require_erased(connection, compiled, merge)
        if holder is not None:
            lease.require_lease(connection, holder)  # 3
        faults.reach("merge.locked")
        stage.require_complete(connection, compiled, merge.staged)  # 4
        kinds.add_batch(connection, compiled, merge.staged)  # 5
        faults.reach("merge.added")
        now = stored_clock(connection, compiled, merge.end)
        drop_expired(connection, compiled, "state", merge.end, now)  # 6
        advance(connection, compiled, merge)  # 7
        outbox.record_changes(connection, compiled, _causes(connection, compiled, merge, now))  # 8
        stage.clear(connection, compiled, merge.staged)
        tally(connection, compiled, merge, now)  # 9
        if merge.excluded:
            Exclusions(connection, compiled, merge.end.ids, merge.readings).add(merge.excluded)  # 10
            exclusions.require_few(connection, compiled, merge.records(compiled))
        faults.reach("merge.advanced")
    faults.reach("merge.committed")


def lock(connection: Connection, compiled: CompiledView) -> None:
    """Make every other merge and repair of the view wait until this transaction ends."""
    connection.execute(
        "SELECT FROM truelog.view WHERE view = %s AND version = %s FOR UPDATE",
        (compiled.name, compiled.view.version),
    )


def positions(connection: Connection, compiled: CompiledView) -> Positions:
    """The positions of the view's own rows, with its topic ids."""
    rows = connection.execute(
        "SELECT topic, partition, next_offset, topic_id FROM truelog.view_position WHERE view = %s AND version = %s",
        (compiled.name, compiled.view.version),
    ).fetchall()
    return Positions.of_rows(rows)


def require_at(connection: Connection, compiled: CompiledView, begin: Positions) -> Positions:
    """Require that the view is exactly at `begin`, and return its positions.

    Raises: Stale, Gap.
    """
    current = positions(connection, compiled)
    current.require_same_topics(begin)
    expected = begin.only(compiled.view.topics)
    for topic, partition in sorted({*current.partitions(), *expected.partitions()}):
        offset, start = current.at(topic, partition), expected.at(topic, partition)
        if offset == start:
            continue
        error, cure = (Stale, "Is another process running?") if offset > start else (Gap, f"Read from {offset} on.")
        where = f"{topic} {partition}"
        raise error(f"{compiled.name} is at {where}:{offset}, but this batch begins at {start}. {cure}")
    return current


def require_same_partitions(compiled: CompiledView, reached: Positions, end: Positions) -> None:
    """Require, for a view that depends on the order of a key's events, that `end` has no partition that it lacks.

    Once partitions were added, the earlier and the later events of a key may be in two partitions. A topic that the
    view has not begun may have any.

    Raises:
        PartitionsAdded
    """
    if not compiled.needs_order:
        return
    grown = [t for t, begun in reached.offsets.items() if end.offsets.get(t, {}).keys() - begun.keys()]
    if grown:
        raise PartitionsAdded(
            f"partitions were added to {', '.join(grown)}, so the events of a key may be in two partitions without a "
            f"common order. Send them to a new topic, and let a new version of {compiled.name} read it."
        )


def require_reading(connection: Connection, compiled: CompiledView, readings: Mapping[str, int]) -> None:
    """Require that the view has counted its records under these readings of its topics; an absent reading is 0.

    Raises:
        MeaningChanged: a topic was judged again, but the view or this process was not.
    """
    rows: list[tuple[Any, ...]] = connection.execute(
        "SELECT DISTINCT topic, reading FROM truelog.view_position WHERE view = %s AND version = %s",
        (compiled.name, compiled.view.version),
    ).fetchall()
    for topic, reading in rows:
        if reading != readings.get(topic, 0):
            raise MeaningChanged(
                f"{compiled.name} has counted {topic} under reading {reading}, but this process judges it by reading "
                f"{readings.get(topic, 0)}. `truelog events rejudge {topic}` rebuilds the view."
            )


def repairs(connection: Connection, compiled: CompiledView) -> int:
    """How often the view was repaired."""
    row = connection.execute(
        "SELECT repairs FROM truelog.view WHERE (view, version) = (%s, %s)", (compiled.name, compiled.view.version)
    ).fetchone()
    return 0 if row is None else int(str(row[0]))


def record_repair(connection: Connection, compiled: CompiledView) -> None:
    """Count a repair, in its own transaction, so that no merge uses what it has read before the repair."""
    connection.execute(
        "UPDATE truelog.view SET repairs = repairs + 1 WHERE (view, version) = (%s, %s)",
        (compiled.name, compiled.view.version),
    )


def _require_unrepaired(connection: Connection, compiled: CompiledView, known: int | None) -> None:
    if known is not None and repairs(connection, compiled) != known:
        raise Stale(f"{compiled.name} was repaired while its batch was computed. Repeat the batch.")


def require_erased(connection: Connection, compiled: CompiledView, merge: Merge) -> None:
    """Require that what is stored was read after the erasures that may cover its records.

    An erasure repairs the view under the lock that this transaction holds. So a batch that was merged before is
    repaired, and a batch after it finds the erasure here.

    Raises:
        Stale
    """
    begin, end = merge.begin.only(compiled.view.topics), merge.end.only(compiled.view.topics)
    if missed := ledger.unknown(connection, begin, end, merge.erasures):
        raise Stale(
            f"{compiled.name}: records were read before erasure {missed[0]}, which may cover some of them. They must "
            "be read again from the archive."
        )


def _causes(connection: Connection, compiled: CompiledView, merge: Merge, now: datetime | None) -> list[Range]:
    """The records that alone can have changed rows. There are none if they are many, or rows may have expired."""
    found = merge.few_records(compiled) if compiled.view.publish else []
    return found if found and stored_clock(connection, compiled, merge.begin) == now else []


def stored_clock(connection: Connection, compiled: CompiledView, end: Positions) -> datetime | None:
    """The clock at `end` by the stored ticks; None if the view does not depend on it, or if no tick counts yet."""
    return clock.at(connection, end, compiled.view.reads) if compiled.view.reads_clock else None


def drop_expired(
    connection: Connection, compiled: CompiledView, schema: str, end: Positions, now: datetime | None
) -> None:
    """Delete the rows of each of a view's tables that have expired at `end`, when the clock is at `now`.

    Rows expire by the clock or by the horizon of copies.
    """
    drop_expired_at(connection, compiled, schema, now)
    kinds.forget_copies(connection, compiled, schema, end.only(compiled.view.reads).partitions())


def drop_expired_at(connection: Connection, compiled: CompiledView, schema: str, now: datetime | None) -> None:
    """Delete the rows of each of a view's tables that have expired when the clock is at `now`."""
    for each in compiled.tables:
        clock.drop_before(connection, each, schema, clock.cutoff_at(each, now))
    if schema == "state":
        kinds.forget_expired(connection, compiled, clock.cutoff_at(compiled.own, now))


def leader_epochs(connection: Connection, compiled: CompiledView) -> Epochs:
    """The leader epochs in which the view reached its positions, as far as they are known."""
    rows = connection.execute(
        "SELECT topic, partition, leader_epoch FROM truelog.position "
        "WHERE view = %s AND version = %s AND leader_epoch IS NOT NULL",
        (compiled.name, compiled.view.version),
    ).fetchall()
    return {(topic, partition): epoch for topic, partition, epoch in cast(list[tuple[str, int, int]], rows)}


def advance(connection: Connection, compiled: CompiledView, merge: Merge) -> None:
    """Advance the positions to the end of the merge, in its transaction."""
    end = merge.end.only(compiled.view.topics)
    places = end.partitions()
    connection.execute(
        _ADVANCE,
        {
            "view": compiled.name,
            "version": compiled.view.version,
            "topics": [topic for topic, _ in places],
            "partitions": [partition for _, partition in places],
            "ids": [end.ids[topic] for topic, _ in places],
            "offsets": [end.at(*each) for each in places],
            "readings": [merge.readings.get(topic, 0) for topic, _ in places],
            "epochs": [merge.epochs.get(each) for each in places],
        },
    )


def tally(connection: Connection, compiled: CompiledView, merge: Merge, now: datetime | None) -> None:
    """Record the merge in the same transaction, so that a repeated merge counts once. The time excludes the commit."""
    connection.execute(
        _TALLY,
        (
            compiled.name,
            compiled.view.version,
            merge.staged.rows,
            merge.prepare_seconds,
            now,
            *2 * (merge.records(compiled),),
        ),
    )
