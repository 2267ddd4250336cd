"""Reconcile: rebuilds a view at the positions of the streamed view, and compares the two row for row.

0. On request, audit partials against the raw bytes (`partial_audit`). Before a repair from raw bytes, audit all
   partials. Otherwise the next reconcile would undo the repair wherever a partial is wrong.
1. Hash the streamed table and read its positions in one database snapshot.
2. Wait until the archive reaches these positions. After a timeout, the verdict is UNKNOWN.
3. Rebuild the view at these positions and hash the rebuild.
4. If any buckets differ, copy their streamed rows together with the current positions, and rebuild these buckets at
   those positions. Compare every row, with NULL equal to NULL, and find out why the rows differ (`root_cause`).
5. Store the result, and store a certificate if the hashes were equal (`certificate`). On request, repair the differing
   rows and compare again.

If the tables are equal, the comparison uses only their hashes and does not copy or load any rows.
"""

import json
import logging
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from typing import Any

from psycopg import sql

from truelog.archive import archive_reader
from truelog.batch.batch_context import BatchContext, open_batch
from truelog.batch.rebuild import Rebuilder
from truelog.batch.shared_events import SharedEvents, shared_events
from truelog.kernel import clock, merge, table
from truelog.log.positions import Positions
from truelog.reconcile import certificate, certificate_store, root_cause, row_diff, table_hash
from truelog.reconcile.certificate import EqualResult
from truelog.reconcile.offset_search import Cause, Explanation
from truelog.reconcile.partial_audit import audit_partials
from truelog.reconcile.repair import repair
from truelog.reconcile.table_hash import TableHash
from truelog.storage import audit_trail
from truelog.storage.audit_trail import OperationKind
from truelog.storage.database import Connection, connect, storable
from truelog.support.errors import ArchiveBehind, CodeChanged, MeaningChanged, NotMade, TruelogError
from truelog.support.settings import Settings
from truelog.views.compiled_view import CompiledView

_SAMPLE = 100  # maximum number of differing rows stored with the result; the counts cover all differing rows
_AT_ONCE = 4  # views that are compared side by side
_REASON = 500  # maximum length of a stored reason in characters

NOWHERE = Positions()

log = logging.getLogger("truelog.reconcile")


@dataclass(frozen=True)
class ReconcileResult:
    """The verdict of a comparison, the row counts, and the first differing rows with both values."""

    view: str
    version: int | None  # None if the view's file cannot be read
    positions: Positions  # empty if the view was not compared
    rows: int = 0
    missing: int = 0
    extra: int = 0
    different: int = 0
    repaired: int = 0
    verdict: str = "UNKNOWN"
    reason: str = ""
    sample: tuple[dict[str, Any], ...] = ()
    mended_days: tuple[str, ...] = ()  # log days whose partial differed from the raw bytes and was replaced
    id: int | None = None  # id of the row in truelog.reconciliation
    causes: tuple[dict[str, Any], ...] = ()  # why rows differ: each cause with its row count and evidence
    certificate: str | None = None  # id of the certificate, if any
    digests: TableHash | None = field(default=None, repr=False)  # hash of all rows at `positions`, if EQUAL

    @property
    def equal(self) -> bool:
        return self.verdict == "EQUAL"

    def as_dict(self) -> dict[str, Any]:
        """The stable format for scripts."""
        plain = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "digests"}
        return plain | {"positions": json.loads(self.positions.as_json()), "equal": self.equal}


@dataclass(frozen=True)
class ReconcileRequest:
    """What a reconcile does in addition to the comparison.

    from_raw: parse the raw bytes instead of reading partials and typed columns, and check the skipped records. If the
        transform does not fail on a skipped record, this is a difference.
    repair: repair the differing rows and compare again, unless more rows differ than the settings allow.
    audit: first audit the partials that are due.
    doer: the person or process that requests the reconcile.
    exempt: views that are compared but not repaired.
    run: the id of the Airflow run, or None on the command line.
    """

    from_raw: bool = False
    repair: bool = False
    audit: bool = False
    doer: str = audit_trail.AIRFLOW
    exempt: frozenset[str] = frozenset()
    run: str | None = None

    def for_view(self, view: str) -> "ReconcileRequest":
        return replace(self, repair=self.repair and view not in self.exempt)


COMPARE_ONLY = ReconcileRequest()


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
        result = compare(rebuilder)
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


def compare(rebuilder: Rebuilder) -> ReconcileResult:
    """Run steps 1 to 4."""
    connection, compiled = rebuilder.connection, rebuilder.compiled
    with _snapshot(connection):
        positions = merge.positions(connection, compiled)
        rebuilder.require_reading()
        streamed = table_hash.hash_table(connection, compiled, sql.Identifier("state", compiled.table))  # 1
    result = ReconcileResult(compiled.name, compiled.view.version, positions)
    try:
        _wait_for_archive(rebuilder, positions)  # 2
        rebuilt = _hash_rebuild(rebuilder, positions)  # 3
        unequal = table_hash.unequal_buckets(streamed, rebuilt)
        if not unequal:
            row_diff.clear_differences(connection, compiled)
            return replace(result, rows=table_hash.count_rows(rebuilt), verdict="EQUAL", digests=rebuilt)
        return _compare_rows(rebuilder, unequal)  # 4
    except ArchiveBehind as behind:
        return replace(result, reason=str(behind))


def _hash_rebuild(rebuilder: Rebuilder, positions: Positions) -> TableHash:
    states = rebuilder.states(positions)
    kept = clock.without_expired(rebuilder.connection, rebuilder.compiled, states, positions)
    return table_hash.hash_frame(rebuilder.compiled, rebuilder.compiled.stored(kept))


def _compare_rows(rebuilder: Rebuilder, buckets: Sequence[int]) -> ReconcileResult:
    connection, compiled = rebuilder.connection, rebuilder.compiled
    positions, rows = snapshot(connection, compiled, buckets)
    _wait_for_archive(rebuilder, positions)
    rebuilder.rebuild(positions, table_hash.rows_in_buckets(compiled, buckets))
    counts = row_diff.find_differences(connection, compiled)
    causes = root_cause.find_root_causes(rebuilder, positions, counts.unequal) if counts.unequal else ()
    return ReconcileResult(
        compiled.name,
        compiled.view.version,
        positions,
        rows=rows + counts.missing - counts.extra,
        missing=counts.missing,
        extra=counts.extra,
        different=counts.different,
        verdict="DIFFERENT" if counts.unequal else "EQUAL",
        sample=row_diff.sample_rows(connection, compiled, _SAMPLE),
        causes=tuple(each.as_dict() for each in causes),
    )


def _wait_for_archive(rebuilder: Rebuilder, positions: Positions) -> None:
    settings = rebuilder.context.settings
    archive_reader.wait_for(settings, positions, seconds=settings.archive_wait_seconds)


def snapshot(connection: Connection, compiled: CompiledView, buckets: Sequence[int]) -> tuple[Positions, int]:
    """Copy these buckets of the streamed table to `recon.<table>_streamed`.

    Returns the exact positions of the copy and the number of rows in the whole table at that moment.
    """
    copy, table = row_diff.streamed_table(compiled), sql.Identifier("state", compiled.table)
    with _snapshot(connection):
        connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(copy))
        connection.execute(
            sql.SQL("CREATE UNLOGGED TABLE {} AS SELECT * FROM {} WHERE {} IN ({})").format(
                copy, table, table_hash.bucket_sql(compiled), sql.SQL(", ").join(map(sql.Literal, buckets))
            )
        )
        count = connection.execute(sql.SQL("SELECT count(*) FROM {}").format(table)).fetchone()
        assert count is not None  # noqa: S101
        return merge.positions(connection, compiled), int(str(count[0]))


@contextmanager
def _snapshot(connection: Connection) -> Iterator[None]:
    """Run all reads on one database snapshot."""
    with connection.transaction():
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        yield


def _save_comparison(rebuilder: Rebuilder, result: ReconcileResult, request: ReconcileRequest) -> ReconcileResult:
    """Store the result, write its id into the diff table, and store a certificate if the result is EQUAL."""
    saved = _save(rebuilder.connection, result, request)
    assert saved.id is not None  # noqa: S101
    if saved.verdict != "UNKNOWN":
        row_diff.set_reconciliation(rebuilder.connection, rebuilder.compiled, saved.id)
    if not saved.equal or saved.digests is None:  # rows may only have become equal during the comparison
        return saved
    excluded = rebuilder.excluded(saved.positions)
    used = rebuilder.event_versions(saved.positions)
    equal = EqualResult(saved.positions, excluded, saved.digests, request.from_raw, used)
    made = certificate.make_certificate(rebuilder.context.spark, rebuilder.compiled, equal)
    certificate_store.store(rebuilder.context.settings, rebuilder.connection, made, saved.id)
    return replace(saved, certificate=made.id)


def _save(connection: Connection, result: ReconcileResult, request: ReconcileRequest) -> ReconcileResult:
    row = connection.execute(
        "INSERT INTO truelog.reconciliation "
        "(view, version, positions, from_raw, row_count, missing, extra, different, repaired, verdict, reason, sample, "
        "causes, run) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s) RETURNING id",
        (
            result.view,
            result.version,
            result.positions.as_json(),
            request.from_raw,
            result.rows,
            result.missing,
            result.extra,
            result.different,
            result.repaired,
            result.verdict,
            result.reason,
            json.dumps(result.sample),
            json.dumps(result.causes),
            request.run,
        ),
    ).fetchone()
    assert row is not None  # noqa: S101
    return replace(result, id=int(str(row[0])))


def reconcile_all(settings: Settings, views: Sequence[str], request: ReconcileRequest) -> list[ReconcileResult]:
    """Reconcile the named views in a separate Spark session, or all views if no view is named.

    Views are compared side by side, because one view alone leaves cores idle while it plans or waits for PostgreSQL.
    """
    with open_batch(settings, "truelog reconcile", views) as context:
        refused = context.views.refused.items()
        results = [refused_result(settings, view, request, reason=reason) for view, reason in refused]
        with connect(settings) as connection:
            reached = [merge.positions(connection, each) for each in context.views.compiled]
        with shared_events(context.spark, settings, reached) as shared, ThreadPoolExecutor(_AT_ONCE) as pool:
            each_alone = _Alone(context, request, shared if len(reached) > 1 else None)
            return results + list(pool.map(each_alone.reconcile, context.views.compiled))


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
        return _save(
            connection, ReconcileResult(name, version, at, reason=storable(text[:_REASON]), causes=causes), request
        )


def _causes(settings: Settings, compiled: CompiledView, reason: Exception | str) -> tuple[dict[str, Any], ...]:
    """Why the view could not be rebuilt, if the cause is known."""
    if isinstance(reason, CodeChanged):
        return (Explanation(Cause.CODE, 0, str(reason)).as_dict(),)
    if isinstance(reason, str | TruelogError):  # the reason states the cause
        return ()
    return tuple(each.as_dict() for each in root_cause.explain_failure(settings, compiled.view.topics))


def exit_code(results: Iterable[ReconcileResult]) -> int:
    """0 if all results are EQUAL, 1 if any result is DIFFERENT, 3 if none is DIFFERENT but at least one is UNKNOWN."""
    verdicts = {r.verdict for r in results}
    return 1 if "DIFFERENT" in verdicts else 3 if "UNKNOWN" in verdicts else 0
