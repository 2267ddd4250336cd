"""Reconcile: rebuild a view at the positions where the streamed one stands, and compare row for row.

0. where it was asked for, hold partials against the raw bytes (`partial_audit`): some of them, or all of them before
   a repair from raw bytes, which the next comparison would take back where a partial says otherwise
1. the digests of the streamed table together with its positions, in one snapshot of the database
2. wait, within bounds, until the archive has reached those positions; else the verdict is UNKNOWN
3. the digests of the view rebuilt at those positions
4. where buckets differ: copy their streamed rows with the positions of that moment, rebuild those buckets there, and
   compare every row, NULL equal to NULL, and find out why they differ as far as that can be known (`root_cause`)
5. keep the result, with a certificate where the digests were equal (`truelog.certificate`); where it was asked for,
   repair what differs, and compare again

Equal tables cost no copy and load nothing: a row is looked at by its hash alone until a bucket differs.
"""

import json
import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from typing import Any

from psycopg import sql

from truelog.archive import archive_reader
from truelog.batch.batch_context import BatchContext, open_batch
from truelog.batch.rebuild import Rebuilder
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
from truelog.storage.database import Connection, connect
from truelog.support.errors import ArchiveBehind, CodeChanged, NotMade, TruelogError
from truelog.support.settings import Settings
from truelog.views.compiled_view import Compiled

_SAMPLE = 100  # differing rows kept with the result; the counts are of all
_REASON = 500  # characters of it that are kept

NOWHERE = Positions()

log = logging.getLogger("truelog.reconcile")


@dataclass(frozen=True)
class ReconcileResult:
    """What a comparison found: counts of rows by key, and the first differing rows with both values."""

    view: str
    version: int | None  # None where the view's file cannot be read
    positions: Positions  # none where the view could not be looked at
    rows: int = 0
    missing: int = 0
    extra: int = 0
    different: int = 0
    repaired: int = 0
    verdict: str = "UNKNOWN"
    reason: str = ""
    sample: tuple[dict[str, Any], ...] = ()
    mended_days: tuple[str, ...] = ()  # log days whose partial was not what the raw bytes say
    id: int | None = None  # of the row in truelog.reconciliation
    causes: tuple[dict[str, Any], ...] = ()  # why rows differ: each cause, of how many rows, and how it is known
    certificate: str | None = None  # its id, where one was made
    digests: TableHash | None = field(default=None, repr=False)  # where they were equal: of all rows at `positions`

    @property
    def equal(self) -> bool:
        return self.verdict == "EQUAL"

    def as_dict(self) -> dict[str, Any]:
        """The stable form that scripts read."""
        plain = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "digests"}
        return plain | {"positions": json.loads(self.positions.as_json()), "equal": self.equal}


@dataclass(frozen=True)
class ReconcileRequest:
    """What a reconcile is asked to do beside comparing.

    from_raw: leave partials and typed columns aside, parse the raw bytes, and hold against them which records were
        set aside: one on which the transform does not fail is a difference.
    mend: repair what differs, and compare again; where more differs than settings allow, it is left to a person.
    proving: first hold the partials whose turn it is against the raw bytes.
    doer: who asked.
    spared: the views that are not repaired, though others are.
    run: the Airflow run that compares, None at the command line.
    """

    from_raw: bool = False
    mend: bool = False
    proving: bool = False
    doer: str = audit_trail.AIRFLOW
    spared: frozenset[str] = frozenset()
    run: str | None = None

    def about(self, view: str) -> "ReconcileRequest":
        return replace(self, mend=self.mend and view not in self.spared)


COMPARE_ONLY = ReconcileRequest()


def reconcile(context: BatchContext, compiled: Compiled, request: ReconcileRequest = COMPARE_ONLY) -> ReconcileResult:
    """Compare a view with its rebuild, while the stream goes on."""
    with connect(context.settings, autocommit=True) as connection:
        try:
            table.require_same_code(connection, compiled)
        except (CodeChanged, NotMade) as refused:
            return refused_result(context.settings, compiled, request, reason=refused)
        row_diff.drop_copies(connection, compiled.table)
        rebuilder = Rebuilder(context, connection, compiled, request.from_raw)
        repairs_from_raw = request.from_raw and request.mend
        proves = request.proving or repairs_from_raw
        wrong = audit_partials(rebuilder, every=repairs_from_raw).wrong if proves else ()
        result = compare(rebuilder)
        if request.from_raw and result.equal:
            result = _excluded_rightly(rebuilder, result)
        result = _keep_with_rows(rebuilder, result, request)
        if request.mend and may_be_repaired(context.settings, result):
            result = _keep_with_rows(rebuilder, _repaired(rebuilder, result, request), request)
    return replace(result, mended_days=tuple(day.isoformat() for day in wrong))


def may_be_repaired(settings: Settings, result: ReconcileResult) -> bool:
    """Whether few enough rows differ: so few that a person could look at each, or a small share of the view.

    None where it is the rebuild that is wrong: its rows would replace right ones.
    """
    if {each["cause"] for each in result.causes} & {Cause.FILE, Cause.PARTIAL}:
        return False
    unequal = result.missing + result.extra + result.different
    few = max(settings.repair_rows, settings.repair_share * result.rows)
    return settings.repair_share > 0 and 0 < unequal <= few


def _excluded_rightly(rebuilder: Rebuilder, found: ReconcileResult) -> ReconcileResult:
    """Stream and rebuild leave out the same records: that they are equal does not say that these fail."""
    wrongly = rebuilder.unfounded_exclusions(found.positions)
    if not wrongly:
        return found
    named = ", ".join(f"{topic} {partition}:{offset}" for topic, partition, offset in wrongly[:_SAMPLE])
    reason = (
        f"{len(wrongly)} records are set aside on which the transform does not fail: {named}. "
        f"Delete their rows of truelog.exclusion; `truelog reconcile --from-raw --repair` then counts them."
    )
    return replace(found, verdict="DIFFERENT", reason=reason)


def _repaired(rebuilder: Rebuilder, found: ReconcileResult, request: ReconcileRequest) -> ReconcileResult:
    """What a comparison finds after the repair; the same as before where the archive is behind."""
    try:
        repaired = repair(rebuilder)
    except ArchiveBehind as behind:
        return replace(found, reason=f"not repaired: {behind}")
    about = f"{repaired} rows replaced, after reconciliation {found.id}"
    audit_trail.record_operation(rebuilder.connection, OperationKind.REPAIR, found.view, request.doer, about)
    return replace(compare(rebuilder), repaired=repaired)


def compare(rebuilder: Rebuilder) -> ReconcileResult:
    """Steps 1 to 4."""
    connection, compiled = rebuilder.connection, rebuilder.compiled
    with _snapshot(connection):
        positions = merge.positions(connection, compiled)
        streamed = table_hash.hash_table(connection, compiled, sql.Identifier("state", compiled.table))  # 1
    result = ReconcileResult(compiled.name, compiled.view.version, positions)
    try:
        _wait(rebuilder, positions)  # 2
        rebuilt = _digests(rebuilder, positions)  # 3
        unequal = table_hash.unequal_buckets(streamed, rebuilt)
        if not unequal:
            row_diff.no_differences(connection, compiled)
            return replace(result, rows=table_hash.count_rows(rebuilt), verdict="EQUAL", digests=rebuilt)
        return _compare_rows(rebuilder, unequal)  # 4
    except ArchiveBehind as behind:
        return replace(result, reason=str(behind))


def _digests(rebuilder: Rebuilder, positions: Positions) -> TableHash:
    states = rebuilder.states(positions)
    kept = clock.without_expired(rebuilder.connection, rebuilder.compiled, states, positions)
    return table_hash.hash_frame(rebuilder.compiled, rebuilder.compiled.stored(kept))


def _compare_rows(rebuilder: Rebuilder, buckets: Sequence[int]) -> ReconcileResult:
    connection, compiled = rebuilder.connection, rebuilder.compiled
    positions, rows = snapshot(connection, compiled, buckets)
    _wait(rebuilder, positions)
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


def _wait(rebuilder: Rebuilder, positions: Positions) -> None:
    settings = rebuilder.context.settings
    archive_reader.wait_for(settings, positions, seconds=settings.archive_wait_seconds)


def snapshot(connection: Connection, compiled: Compiled, buckets: Sequence[int]) -> tuple[Positions, int]:
    """Copy these buckets of the streamed table into `recon.<table>_streamed`.

    Returns the positions of exactly that copy, and how many rows the whole table had there.
    """
    copy, table = row_diff.streamed_table(compiled), sql.Identifier("state", compiled.table)
    with _snapshot(connection):
        connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(copy))
        connection.execute(
            sql.SQL("CREATE UNLOGGED TABLE {} AS SELECT * FROM {} WHERE {} IN ({})").format(
                copy, table, table_hash.bucket_sql(compiled), sql.SQL(", ").join(map(sql.Literal, buckets))
            )
        )
        counted = connection.execute(sql.SQL("SELECT count(*) FROM {}").format(table)).fetchone()
        assert counted is not None  # noqa: S101
        return merge.positions(connection, compiled), int(str(counted[0]))


@contextmanager
def _snapshot(connection: Connection) -> Iterator[None]:
    """What is read within is of one moment."""
    with connection.transaction():
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        yield


def _keep_with_rows(rebuilder: Rebuilder, result: ReconcileResult, request: ReconcileRequest) -> ReconcileResult:
    """The result, and whose the rows in the table of differences are."""
    kept = _keep(rebuilder.connection, result, request)
    assert kept.id is not None  # noqa: S101
    if kept.verdict != "UNKNOWN":
        row_diff.mark_causes(rebuilder.connection, rebuilder.compiled, kept.id)
    if not kept.equal or kept.digests is None:  # rows that became equal while they were compared: no one moment's
        return kept
    excluded = rebuilder.excluded(kept.positions)
    equal = EqualResult(kept.positions, excluded, kept.digests, request.from_raw)
    made = certificate.make_certificate(rebuilder.context.spark, rebuilder.compiled, equal)
    certificate_store.store(rebuilder.context.settings, rebuilder.connection, made, kept.id)
    return replace(kept, certificate=made.id)


def _keep(connection: Connection, result: ReconcileResult, request: ReconcileRequest) -> ReconcileResult:
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
    """Reconcile the named views, or all of them, in a Spark session of its own."""
    with open_batch(settings, "truelog reconcile", views) as context:
        refused = context.views.refused.items()
        results = [refused_result(settings, view, request, reason=reason) for view, reason in refused]
        for each in context.views.compiled:
            try:
                results.append(reconcile(context, each, request.about(each.name)))
            except Exception as error:  # whatever befell one view, the others are compared
                log.exception("%s could not be compared", each.name)
                with connect(settings) as connection:
                    stands = merge.positions(connection, each)
                results.append(refused_result(settings, each, request, reason=error, at=stands))
        return results


def refused_result(
    settings: Settings,
    view: Compiled | str,
    request: ReconcileRequest,
    *,
    reason: Exception | str,
    at: Positions = NOWHERE,
) -> ReconcileResult:
    """The answer for a view that was not compared: neither equal nor different, and why.

    Of one that cannot be compiled only the name is known. Where it stands is told if another try may have an answer.
    """
    name, version = (view, None) if isinstance(view, str) else (view.name, view.view.version)
    said = str(reason) if isinstance(reason, str | CodeChanged | NotMade) else f"{type(reason).__name__}: {reason}"
    causes = () if isinstance(view, str) else _causes(settings, view, reason)
    with connect(settings, autocommit=True) as connection:
        return _keep(connection, ReconcileResult(name, version, at, reason=said[:_REASON], causes=causes), request)


def _causes(settings: Settings, compiled: Compiled, reason: Exception | str) -> tuple[dict[str, Any], ...]:
    """Why it could not be rebuilt, where that is known."""
    if isinstance(reason, CodeChanged):
        return (Explanation(Cause.CODE, 0, str(reason)).as_dict(),)
    if isinstance(reason, str | TruelogError):  # which tells the cause itself
        return ()
    return tuple(each.as_dict() for each in root_cause.explain_failure(settings, compiled.view.topics))


def exit_code(results: Iterable[ReconcileResult]) -> int:
    """0 all equal, 1 one differs, 3 nothing differs but one is unknown."""
    verdicts = {r.verdict for r in results}
    return 1 if "DIFFERENT" in verdicts else 3 if "UNKNOWN" in verdicts else 0
