"""Reconcile: rebuilds a view at the positions of the streamed view, and compares the two row for row.

The rows of a batch-only view are compared in the same way, at the positions of its last build.

0. On request, audit partials against the raw bytes (`partial_audit`). Before a repair from raw bytes, audit all
   partials. Otherwise the next reconcile would undo the repair wherever a partial is wrong.
1. Hash the streamed table and read its positions in one database snapshot.
2. Wait until the archive reaches these positions. After a timeout, the verdict is UNKNOWN.
3. Rebuild the view at these positions and hash the rebuild. An incremental comparison begins from the rows that an
   earlier one has proved, and reads only the records since then (`truelog.batch.base`). If the hashes differ, it reads
   everything. A base therefore saves time but decides nothing.
4. If any buckets differ, copy their streamed rows together with the current positions, and rebuild these buckets at
   those positions. Compare every row, with NULL equal to NULL, and find out why the rows differ (`root_cause`).
5. Store the result, and store a certificate if the hashes were equal (`certificate`). On request, repair the differing
   rows and compare again.

If the tables are equal, the comparison uses only their hashes and does not copy or load any rows.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from psycopg import sql
from pyspark.sql import DataFrame

from truelog.archive import reader as archive_reader
from truelog.batch import base
from truelog.batch.base import Rebuilt
from truelog.batch.batch_context import BatchContext, open_batch
from truelog.batch.rebuild import Rebuilder
from truelog.batch.shared_events import SharedEvents, shared_events
from truelog.kernel import clock, merge
from truelog.log.positions import Positions
from truelog.reconcile import certificate, certificate_store, root_cause, row_diff
from truelog.reconcile.certificate import Certificate, EqualResult
from truelog.reconcile.offset_search import Cause, Explanation
from truelog.reconcile.partial_audit import audit_partials, oldest_proof
from truelog.reconcile.reconcile_result import COMPARE_ONLY, NOWHERE, ReconcileRequest, ReconcileResult, save
from truelog.reconcile.repair import repair
from truelog.reconcile.row_diff import NO_DIFFERENCES, DiffCounts
from truelog.storage import audit_trail
from truelog.storage.audit_trail import OperationKind
from truelog.storage.database import Connection, connect, storable
from truelog.support.errors import ArchiveBehind, CodeChanged, MeaningChanged, NotMade, TruelogError
from truelog.support.settings import Settings
from truelog.tables import deploy as table
from truelog.tables import table_hash
from truelog.tables.compiled_view import CompiledView
from truelog.tables.table_hash import BucketHash, TableHash

_SAMPLE = 100  # maximum number of differing rows stored with the result; the counts cover all differing rows
_AT_ONCE = 4  # views that are compared side by side

log = logging.getLogger("truelog.reconcile")


def reconcile(
    context: BatchContext,
    compiled: CompiledView,
    request: ReconcileRequest = COMPARE_ONLY,
    shared: SharedEvents | None = None,
) -> ReconcileResult:
    """Compare a view with its rebuild while the stream is running, and store the result.

    `shared` holds the events that other views of this run decode from the same raw bytes.
    """
    with connect(context.settings, autocommit=True) as connection:
        try:
            table.require_same_code(connection, compiled)
            Rebuilder(context, connection, compiled).require_reading()
        except (CodeChanged, NotMade, MeaningChanged) as refused:
            return refused_result(context.settings, compiled, request, reason=refused)
        row_diff.lock_comparisons(connection, compiled.table)
        rebuilder = Rebuilder(context, connection, compiled, request.from_raw, shared)
        audit_all = request.from_raw and request.repair
        wrong = audit_partials(rebuilder, every=audit_all).wrong if request.audit or audit_all else ()
        result = compare(rebuilder, incremental=request.incremental)
        if request.from_raw and result.equal:
            result = _check_exclusions(rebuilder, result)
        result = _save_comparison(rebuilder, result, request)
        if request.repair and may_be_repaired(context.settings, result):
            result = _save_comparison(rebuilder, _repair(rebuilder, result, request), request)
    return replace(result, mended_days=tuple(day.isoformat() for day in wrong))


def may_be_repaired(settings: Settings, result: ReconcileResult) -> bool:
    """Whether few enough rows differ for a repair: at most a fixed number of rows, or a small share of the view.

    If the rebuild is wrong, no row may be repaired, because rows from the rebuild would replace correct rows.
    """
    if {each["cause"] for each in result.causes} & {Cause.FILE, Cause.PARTIAL}:
        return False
    unequal = result.missing + result.extra + result.different
    few = max(settings.repair_rows, settings.repair_share * result.rows)
    return settings.repair_share > 0 and 0 < unequal <= few


def _check_exclusions(rebuilder: Rebuilder, result: ReconcileResult) -> ReconcileResult:
    """Change an EQUAL result to DIFFERENT if the transform does not fail on some of the skipped records."""
    unfounded = rebuilder.unfounded_exclusions(result.positions)
    if not unfounded:
        return result
    named = ", ".join(f"{topic} {partition}:{offset}" for topic, partition, offset in unfounded[:_SAMPLE])
    reason = (
        f"the transform does not fail on {len(unfounded)} of the skipped records: {named}. "
        f"Delete their rows from truelog.exclusion. Then run `truelog reconcile --from-raw --repair` to count them."
    )
    return replace(result, verdict="DIFFERENT", reason=reason)


def _repair(rebuilder: Rebuilder, result: ReconcileResult, request: ReconcileRequest) -> ReconcileResult:
    """Repair and compare again. If the archive is behind, return the old result with the reason."""
    try:
        repaired = repair(rebuilder, result.positions)
    except ArchiveBehind as behind:
        return replace(result, reason=f"not repaired: {behind}")
    about = f"{repaired} rows replaced, after reconciliation {result.id}"
    audit_trail.record_operation(rebuilder.connection, OperationKind.REPAIR, result.view, request.doer, about)
    return replace(compare(rebuilder), repaired=repaired)


def compare(rebuilder: Rebuilder, *, incremental: bool = False) -> ReconcileResult:
    """Run steps 1 to 4."""
    connection, compiled = rebuilder.connection, rebuilder.compiled
    with _snapshot(connection):
        positions = merge.positions(connection, compiled)
        rebuilder.require_reading()
        streamed = {each.side: _hash_streamed(connection, each) for each in compiled.tables}  # 1
    result = ReconcileResult(compiled.name, compiled.view.version, positions)
    try:
        _wait_for_archive(rebuilder, positions)  # 2
        since, problem = _rebuild_since_base(rebuilder, positions) if incremental else (None, "")
        if since is not None:
            if not _unequal(streamed, since):
                return _equal(rebuilder, result, since)
            since.cache.close()
        large = table_hash.count_rows(streamed[""]) >= rebuilder.context.settings.base_rows
        rebuilt = _rebuild_all(rebuilder, positions, makes_base=incremental and large and not compiled.sides)  # 3
        if unequal := _unequal(streamed, rebuilt):
            return _compare_rows(rebuilder, unequal)  # 4
        return _equal(rebuilder, replace(result, reason=problem), rebuilt)
    except ArchiveBehind as behind:
        return replace(result, reason=str(behind))


def _hash_streamed(connection: Connection, table: CompiledView) -> TableHash:
    return table_hash.hash_table(connection, table, sql.Identifier(table.schema, table.table))


def _unequal(streamed: Mapping[str, TableHash], rebuilt: Rebuilt) -> dict[str, list[int]]:
    """The unequal buckets of each table that has some, by the name of the side table; "" for the view's own."""
    found = {
        side: table_hash.unequal_buckets(hashes, rebuilt.sides[side] if side else rebuilt.digests)
        for side, hashes in streamed.items()
    }
    return {side: buckets for side, buckets in found.items() if buckets}


def _equal(rebuilder: Rebuilder, result: ReconcileResult, rebuilt: Rebuilt) -> ReconcileResult:
    for each in rebuilder.compiled.tables:
        row_diff.clear_differences(rebuilder.connection, each)
    began = None if rebuilt.base is None else rebuilt.base.certificate
    rows = table_hash.count_rows(rebuilt.digests)
    return replace(result, rows=rows, verdict="EQUAL", rebuilt=rebuilt, base=began)


def _rebuild_all(rebuilder: Rebuilder, positions: Positions, *, makes_base: bool) -> Rebuilt:
    if makes_base:
        return base.write(rebuilder, _states(rebuilder, positions))
    own, *sides = (_hash_rebuilt(rebuilder.of_table(each), positions) for each in rebuilder.compiled.tables)
    return Rebuilt(own, {each.side: hashes for each, hashes in zip(rebuilder.compiled.sides, sides, strict=True)})


def _hash_rebuilt(rebuilder: Rebuilder, positions: Positions) -> TableHash:
    return table_hash.hash_frame(rebuilder.compiled, rebuilder.compiled.stored(_states(rebuilder, positions)))


def _states(rebuilder: Rebuilder, positions: Positions) -> DataFrame:
    """The rebuilt states of a table, without the rows that `keep` has dropped."""
    states = rebuilder.states(positions)
    return clock.without_expired(rebuilder.connection, rebuilder.compiled, states, positions)


def _rebuild_since_base(rebuilder: Rebuilder, positions: Positions) -> tuple[Rebuilt | None, str]:
    """The rebuild that begins from the view's base, if there is one for these positions; or why it failed.

    Whatever is wrong with a base, the comparison reads everything instead, and the next one makes a new base.
    """
    settings, known = rebuilder.context.settings, base.load(rebuilder.connection, rebuilder.compiled)
    if known is None or datetime.now(UTC) - known.begun_at > timedelta(seconds=settings.base_seconds):
        return None, ""
    try:
        certified = certificate_store.find_certificate(settings, known.certificate)
        if not _is_usable(rebuilder, certified, positions):
            return None, ""
        hashes = {bucket: BucketHash.parse(rows, text) for bucket, (rows, text) in certified.buckets.items()}
        return base.advance(rebuilder, known, hashes, certified.positions, positions), ""
    except Exception as error:
        log.warning("the base of %s is made again", rebuilder.compiled.name, exc_info=True)
        base.forget(rebuilder.connection, rebuilder.compiled)
        about = str(error) if isinstance(error, TruelogError) else f"{type(error).__name__}: {error}"
        return None, storable(f"the base could not be used and is made again: {about}")


def _is_usable(rebuilder: Rebuilder, certified: Certificate, positions: Positions) -> bool:
    """Whether the certified rows, with the records since then, are the view at `positions`."""
    before = certified.positions
    return (
        certified.fingerprint == rebuilder.compiled.fingerprint
        and all(positions.ids.get(topic) == known for topic, known in before.ids.items())
        and positions.covers(before)
        and certified.event_versions == rebuilder.event_versions(before)
        and list(certified.excluded) == sorted(rebuilder.excluded(before))
    )


def _compare_rows(rebuilder: Rebuilder, unequal: Mapping[str, Sequence[int]]) -> ReconcileResult:
    connection, compiled = rebuilder.connection, rebuilder.compiled
    positions, rows = snapshot(connection, compiled, unequal)
    _wait_for_archive(rebuilder, positions)
    for each in compiled.tables:
        row_diff.clear_differences(connection, each)
    tables = [each for each in compiled.tables if each.side in unequal]
    counts = {each.side: _differences(rebuilder.of_table(each), positions, unequal[each.side]) for each in tables}
    different = [each for each in tables if counts[each.side].unequal]
    causes = [
        cause
        for each in different
        for cause in root_cause.find_root_causes(rebuilder.of_table(each), positions, counts[each.side].unequal)
    ]
    own = counts.get("", NO_DIFFERENCES)
    return ReconcileResult(
        compiled.name,
        compiled.view.version,
        positions,
        rows=rows + own.missing - own.extra,
        missing=sum(each.missing for each in counts.values()),
        extra=sum(each.extra for each in counts.values()),
        different=sum(each.different for each in counts.values()),
        verdict="DIFFERENT" if different else "EQUAL",
        sample=tuple(row for each in different for row in row_diff.sample_rows(connection, each, _SAMPLE)),
        causes=tuple(each.as_dict() for each in causes),
    )


def _differences(rebuilder: Rebuilder, positions: Positions, buckets: Sequence[int]) -> DiffCounts:
    rebuilder.rebuild(positions, table_hash.rows_in_buckets(rebuilder.compiled, buckets))
    return row_diff.find_differences(rebuilder.connection, rebuilder.compiled)


def _wait_for_archive(rebuilder: Rebuilder, positions: Positions) -> None:
    settings = rebuilder.context.settings
    archive_reader.wait_for(settings, positions, seconds=settings.archive_wait_seconds)


def snapshot(
    connection: Connection, compiled: CompiledView, buckets: Mapping[str, Sequence[int]]
) -> tuple[Positions, int]:
    """Copy these buckets of each streamed table to `recon.<table>_streamed`.

    Returns the exact positions of the copies and the number of rows in the view's own table at that moment.
    """
    with _snapshot(connection):
        for each in compiled.tables:
            if each.side in buckets:
                _copy(connection, each, buckets[each.side])
        own = sql.Identifier(compiled.schema, compiled.table)
        count = connection.execute(sql.SQL("SELECT count(*) FROM {}").format(own)).fetchone()
        assert count is not None  # noqa: S101
        return merge.positions(connection, compiled), int(str(count[0]))


def _copy(connection: Connection, table: CompiledView, buckets: Sequence[int]) -> None:
    copy = row_diff.streamed_table(table)
    connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(copy))
    connection.execute(
        sql.SQL("CREATE UNLOGGED TABLE {} AS SELECT * FROM {} WHERE {} IN ({})").format(
            copy,
            sql.Identifier(table.schema, table.table),
            table_hash.bucket_sql(table),
            sql.SQL(", ").join(map(sql.Literal, buckets)),
        )
    )


@contextmanager
def _snapshot(connection: Connection) -> Iterator[None]:
    """Run all reads on one database snapshot."""
    with connection.transaction():
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        yield


def _save_comparison(rebuilder: Rebuilder, result: ReconcileResult, request: ReconcileRequest) -> ReconcileResult:
    """Store the result, write its id into the diff table, and store a certificate if the result is EQUAL."""
    saved = save(rebuilder.connection, result, request)
    assert saved.id is not None  # noqa: S101
    if saved.verdict != "UNKNOWN":
        for each in rebuilder.compiled.tables:
            row_diff.set_reconciliation(rebuilder.connection, each, saved.id)
    if not saved.equal or saved.rebuilt is None:  # rows may only have become equal during the comparison
        return saved
    excluded = rebuilder.excluded(saved.positions)
    used = rebuilder.event_versions(saved.positions)
    proved_at = _oldest_proof(rebuilder, saved, request)
    hashes = saved.rebuilt.digests, saved.rebuilt.sides
    equal = EqualResult(saved.positions, excluded, *hashes, request.from_raw, used, proved_at)
    made = certificate.make_certificate(rebuilder.context.spark, rebuilder.compiled, equal)
    certificate_store.store(rebuilder.context.settings, rebuilder.connection, made, saved.id)
    with saved.rebuilt.cache:
        base.keep(rebuilder, saved.rebuilt, made.id, proved_at)
    return replace(saved, certificate=made.id)


def _oldest_proof(rebuilder: Rebuilder, result: ReconcileResult, request: ReconcileRequest) -> datetime | None:
    """When the oldest partial behind an EQUAL result was last compared with raw bytes; None if one never was."""
    if request.from_raw:
        return datetime.now(UTC)
    if result.rebuilt is not None and result.rebuilt.base is not None:
        return result.rebuilt.base.proved_at
    return oldest_proof(rebuilder, result.positions)


def reconcile_all(settings: Settings, views: Sequence[str], request: ReconcileRequest) -> list[ReconcileResult]:
    """Reconcile the named views in a separate Spark session, or all views if no view is named."""
    with open_batch(settings, "truelog reconcile", views) as context:
        refused = context.views.refused.items()
        results = [refused_result(settings, view, request, reason=reason) for view, reason in refused]
        return results + reconcile_views(context, request)


def reconcile_views(context: BatchContext, request: ReconcileRequest) -> list[ReconcileResult]:
    """Reconcile the views of the context.

    Views are compared side by side, because one view alone leaves cores idle while it plans or waits for PostgreSQL.
    """
    with connect(context.settings) as connection:
        reached = [merge.positions(connection, each) for each in context.views.compiled]
    with shared_events(context.spark, context.settings, reached) as shared, ThreadPoolExecutor(_AT_ONCE) as pool:
        each_alone = _Alone(context, request, shared if len(reached) > 1 else None)
        return list(pool.map(each_alone.reconcile, context.views.compiled))


@dataclass(frozen=True)
class _Alone:
    """Reconciles each view so that an error in one view does not stop the others."""

    context: BatchContext
    request: ReconcileRequest
    shared: SharedEvents | None

    def reconcile(self, view: CompiledView) -> ReconcileResult:
        settings, request = self.context.settings, self.request
        # Each view gets its share of the cores, however many tasks the others have.
        self.context.spark.sparkContext.setLocalProperty("spark.scheduler.pool", view.name)
        try:
            return reconcile(self.context, view, request.for_view(view.name), self.shared)
        except Exception as error:
            log.exception("%s could not be compared", view.name)
            with connect(settings) as connection:
                positions = merge.positions(connection, view)
            return refused_result(settings, view, request, reason=error, at=positions)


def refused_result(
    settings: Settings,
    view: CompiledView | str,
    request: ReconcileRequest,
    *,
    reason: Exception | str,
    at: Positions = NOWHERE,
) -> ReconcileResult:
    """Store an UNKNOWN result, with the reason, for a view that was not compared.

    If the view cannot be compiled, pass its name. Set `at` if another attempt may succeed.
    """
    name, version = (view, None) if isinstance(view, str) else (view.name, view.view.version)
    text = str(reason) if isinstance(reason, str | CodeChanged | NotMade) else f"{type(reason).__name__}: {reason}"
    causes = () if isinstance(view, str) else _causes(settings, view, reason)
    with connect(settings, autocommit=True) as connection:
        return save(connection, ReconcileResult(name, version, at, reason=storable(text), causes=causes), request)


def _causes(settings: Settings, compiled: CompiledView, reason: Exception | str) -> tuple[dict[str, Any], ...]:
    """Why the view could not be rebuilt, if the cause is known."""
    if isinstance(reason, CodeChanged):
        return (Explanation(Cause.CODE, 0, str(reason)).as_dict(),)
    if isinstance(reason, str | TruelogError):  # the reason states the cause
        return ()
    return tuple(each.as_dict() for each in root_cause.explain_failure(settings, compiled.view.topics))
