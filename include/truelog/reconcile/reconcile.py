"""Reconcile: compares a view with its rebuild (`comparison`), stores the result, and repairs the view on request.

1. On request, audit partials against the raw bytes (`partial_audit`). Before a repair from raw bytes, audit all
   partials. Otherwise the next reconcile would undo the repair wherever a partial is wrong.
2. Compare the view, and store the result. If the hashes were equal, store a certificate (`certificate`), and keep the
   rebuild as the view's base.
3. On request, repair the differing rows and compare again. If a cause may be a wrong partial, audit all partials
   before. If one is wrong, only compare again: a repair from it would replace correct rows.
"""

import logging
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import reduce
from typing import Any

from truelog.archive import reader as archive_reader
from truelog.batch import base
from truelog.batch.batch_context import BatchContext, each_alone, for_records, load_beside, open_batch
from truelog.batch.rebuild import Rebuilder
from truelog.batch.shared_events import SharedEvents, shared_events
from truelog.control.view_loader import LoadedViews
from truelog.erasure import ledger
from truelog.kernel import merge
from truelog.lineage import facets
from truelog.lineage.job import Catalogue
from truelog.lineage.run import Run, batch_run
from truelog.log.positions import Positions
from truelog.reconcile import certificate, certificate_store, root_cause, row_diff
from truelog.reconcile.certificate import EqualResult
from truelog.reconcile.comparison.compare import compare
from truelog.reconcile.offset_search import Cause, Explanation
from truelog.reconcile.partial_audit import audit_partials, oldest_proof
from truelog.reconcile.reconcile_result import (
    COMPARE_ONLY,
    NOWHERE,
    ReconcileRequest,
    ReconcileResult,
    save,
)
from truelog.reconcile.repair import repair
from truelog.storage import audit_trail
from truelog.storage.audit_trail import OperationKind
from truelog.storage.database import connect, storable
from truelog.support.errors import ArchiveBehind, CodeChanged, MeaningChanged, NotMade, TruelogError
from truelog.support.settings import Settings
from truelog.tables import deploy
from truelog.tables.compiled_view import CompiledView

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
    catalogue = Catalogue(context.settings, context.compiling, context.event_types)
    with batch_run(context.settings, lambda: catalogue.comparison(compiled)) as run:
        result = _reconcile(context, compiled, request, shared)
        if run is not None:
            _report(run, result)
        return result


def _report(run: Run, result: ReconcileResult) -> None:
    """Report the verdict as the outcome of a test. A comparison without a verdict has failed."""
    unequal = f"{result.missing} missing, {result.extra} extra, {result.different} different"
    status = {"EQUAL": "pass", "DIFFERENT": "fail"}.get(result.verdict, "skip")
    found = {"name": "stream_equals_rebuild", "status": status, "actual": unequal}
    known = {"verdict": result.verdict, "positions": result.positions.as_json(), "rows": result.rows}
    run.facets["test"] = facets.test([found | {"params": known}])
    if status == "skip":
        run.failure = "the comparison has no verdict: see `truelog reconcile` and the page of the view"


def _reconcile(
    context: BatchContext, compiled: CompiledView, request: ReconcileRequest, shared: SharedEvents | None
) -> ReconcileResult:
    with connect(context.settings, autocommit=True) as connection:
        try:
            deploy.require_same_code(connection, compiled)
            Rebuilder(context, connection, compiled).require_reading()
        except (CodeChanged, NotMade, MeaningChanged) as refused:
            return refused_result(context.settings, compiled, request, reason=refused)
        row_diff.lock_comparisons(connection, compiled.own.name)
        rebuilder = Rebuilder(context, connection, compiled, request.from_raw, shared)
        audit_all = request.from_raw and request.repair
        wrong = audit_partials(rebuilder, every=audit_all).wrong if request.audit or audit_all else ()
        shown = ledger.shown(connection)
        result = compare(rebuilder, incremental=request.incremental)
        result = _save_comparison(rebuilder, result, request, shown)
        if request.repair and may_be_repaired(context.settings, result):
            mended = _mend_partials(rebuilder, result)
            shown = ledger.shown(connection)
            again = compare(rebuilder) if mended else _repair(rebuilder, result, request)
            result = _save_comparison(rebuilder, again, request, shown)
            wrong = [*wrong, *mended]
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


def _mend_partials(rebuilder: Rebuilder, result: ReconcileResult) -> Sequence[datetime]:
    """Before a repair of rows whose cause may be a wrong partial, replace the wrong partials, and return their days.

    A search that ended early has not looked for one. Beside rows of another cause, it looks like a change by hand.
    """
    if rebuilder.from_raw or {each["cause"] for each in result.causes}.isdisjoint({Cause.HAND, Cause.UNKNOWN}):
        return ()
    return audit_partials(rebuilder, every=True).wrong


def _repair(rebuilder: Rebuilder, result: ReconcileResult, request: ReconcileRequest) -> ReconcileResult:
    """Repair and compare again. If the archive is behind, return the old result with the reason."""
    try:
        repaired = repair(rebuilder, result.positions)
    except ArchiveBehind as behind:
        return replace(result, reason=f"not repaired: {behind}")
    about = f"{repaired} rows replaced, after reconciliation {result.id}"
    audit_trail.record_operation(rebuilder.connection, OperationKind.REPAIR, result.view, request.doer, about)
    return replace(compare(rebuilder), repaired=repaired)


def _save_comparison(
    rebuilder: Rebuilder, result: ReconcileResult, request: ReconcileRequest, shown: frozenset[str] | None
) -> ReconcileResult:
    """Store the result, write its id into the diff table, and store a certificate if the result is EQUAL.

    `shown` are the erasures that the archive showed before the comparison. If an erasure has come since, or was being
    written, there is no certificate: the rebuild may have read some of the records before, and others after it.
    """
    saved = save(rebuilder.connection, result, request)
    assert saved.id is not None  # noqa: S101
    if saved.verdict != "UNKNOWN":
        for each in rebuilder.compiled.tables:
            row_diff.set_reconciliation(rebuilder.connection, each, saved.id)
    if not saved.equal or saved.rebuilt is None:  # rows may only have become equal during the comparison
        return saved
    erased = archive_reader.erased_below(rebuilder.context.settings, saved.positions) if shown else {}
    if shown is None or ledger.shown(rebuilder.connection) != shown:
        return saved
    exclusions = rebuilder.exclusions(saved.positions)
    exclusions.drop(exclusions.refuted(saved.positions))  # the rows count these records by now
    used = rebuilder.event_versions(saved.positions)
    proved_at = _oldest_proof(rebuilder, saved, request)
    excluded = exclusions.below(saved.positions)
    equal = EqualResult(saved.positions, excluded, saved.rebuilt.tables, request.from_raw, used, proved_at, erased)
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
        return results + reconcile_views(context, request) + _reconcile_beside(context, request)


def _reconcile_beside(context: BatchContext, request: ReconcileRequest) -> list[ReconcileResult]:
    """Compare the versions of these views that readers see, or may go back to, and that no file declares.

    The run validates the declared versions only.
    """
    return reconcile_views(replace(context, views=LoadedViews(load_beside(context))), replace(request, run=None))


def reconcile_views(context: BatchContext, request: ReconcileRequest) -> list[ReconcileResult]:
    """Reconcile the views of the context. The audit trail names who asked, if a person did."""
    if not context.views.compiled:
        return []
    with connect(context.settings) as connection:
        reached = [merge.positions(connection, each) for each in context.views.compiled]
    records = reduce(Positions.latest, reached, Positions()).records
    with (
        for_records(context, records) as within,
        shared_events(within.spark, context.settings, reached) as shared,
    ):
        of_several = shared if len(reached) > 1 else None

        def compare_one(view: CompiledView) -> ReconcileResult:
            return reconcile(within, view, request.for_view(view.name), of_several)

        def failed(view: CompiledView, error: Exception) -> ReconcileResult:
            log.exception("%s could not be compared", view.name)
            with connect(context.settings) as connection:
                positions = merge.positions(connection, view)
            return refused_result(context.settings, view, request, reason=error, at=positions)

        results = each_alone(within, compare_one, failed)
    if request.doer != audit_trail.AIRFLOW:
        _record_request(context.settings, results, request.doer)
    return results


def _record_request(settings: Settings, results: Sequence[ReconcileResult], doer: str) -> None:
    with connect(settings) as connection:
        for each in results:
            about = f"{each.verdict}, reconciliation {each.id}"
            audit_trail.record_operation(connection, OperationKind.COMPARE, each.view, doer, about)


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
