"""Build: fills a new version of a view from the archive beside the version that readers see, and proves it.

1. Rebuild the version at the archive's positions, and store rows and positions in one transaction. The view's stream
   takes it over exactly there.
2. Wait until the stream has brought it as far as the rows that readers see.
3. Compare it with its rebuild, as `truelog reconcile` does.
4. If cut-over is automatic, move the readers.

Each run goes on where the last one ended. A crash leaves the version as it was, or filled.
"""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from truelog.archive.table import archived_reach
from truelog.batch.batch_context import BatchContext, for_records, open_batch
from truelog.batch.rebuild import Rebuilder
from truelog.erasure import ledger
from truelog.kernel import clock, merge
from truelog.kernel.merge import Merge
from truelog.lineage.job import Catalogue
from truelog.lineage.run import batch_run
from truelog.log.positions import Positions
from truelog.reconcile.reconcile import reconcile
from truelog.spark.early import records_read
from truelog.storage.database import Connection, allow_pauses, connect
from truelog.support import faults, wait
from truelog.support.errors import NotReady, Stale, describe
from truelog.support.setting_groups.versions import CutOver
from truelog.support.settings import Settings
from truelog.tables import deploy as table
from truelog.tables.compiled_view import CompiledView
from truelog.tables.output import outbox
from truelog.versions.cut_over import cut_over
from truelog.versions.version_state import VersionState, version_states

_POLL_SECONDS = 0.5
_SHARED = "a share of the readers gets it, and the others move only on request, with `truelog versions cut-over`"
_HELD = "readers were moved back from it, so they return only on request, with `truelog versions cut-over`"

# A version that was found to differ is not built again until its proof would be too old anyway.
_DUE = """
    SELECT s.view FROM truelog.version_status s JOIN truelog.predecessor USING (view, version)
    WHERE s.declared AND NOT s.batch_only AND NOT s.held AND s.state <> 'STALLED'
        AND (NOT s.built OR s.verdict = '' OR s.verdict_age > %(seconds)s
            OR (%(moves)s AND s.verdict = 'EQUAL' AND s.share = 0))
    ORDER BY s.view
"""

Report = Callable[[str], None]

log = logging.getLogger("truelog.versions")


@dataclass(frozen=True)
class Built:
    """How far a version is after a run: its comparison, whether readers see it now, and what is missing otherwise."""

    view: str
    version: int
    filled: bool = False  # by this run
    verdict: str = ""
    moved: bool = False
    reason: str = ""
    failed: bool = False  # by an error, which is the reason; a version that is not ready yet has not failed

    def as_dict(self) -> dict[str, Any]:
        """The stable format for scripts."""
        return dict(vars(self))


def views_due(settings: Settings) -> list[str]:
    """The views whose declared version is not built, not proved, or proved while readers do not see it yet."""
    moves = settings.cut_over is CutOver.AUTOMATIC
    with connect(settings) as connection:
        wanted = {"seconds": settings.cut_over_proof_seconds, "moves": moves}
        return [view for (view,) in connection.execute(_DUE, wanted).fetchall()]


def build_versions(settings: Settings, views: Sequence[str], report: Report, *, moves: bool, doer: str) -> list[Built]:
    """Build and prove the declared versions of these views, in a Spark session of low priority, and perhaps move.

    A version that cannot be built or proved has a reason, and does not stop the others.
    """
    with (
        open_batch(settings, "truelog versions", views) as opened,
        for_records(opened, records_read(settings)) as context,
    ):
        refused = [Built(view, 0, reason=reason, failed=True) for view, reason in context.views.refused.items()]
        return refused + [
            build_version(context, each, report, moves=moves, doer=doer) for each in context.views.compiled
        ]


def build_version(context: BatchContext, compiled: CompiledView, report: Report, *, moves: bool, doer: str) -> Built:
    """Do the steps that are left for one version."""
    name, version = compiled.name, compiled.view.version
    settings = context.settings
    filled, verdict = False, ""
    try:
        with connect(settings, autocommit=True) as connection:
            if _state(settings, connection, compiled).serving:
                return Built(name, version, reason="readers see it already")
            if not _state(settings, connection, compiled).built:
                report(f"{name}: building version {version} from the archive")
                job = partial(Catalogue(settings, context.compiling, context.event_types).rebuild, compiled)
                with batch_run(settings, job):
                    at = fill(Rebuilder(context, connection, compiled))  # 1
                filled = True
                report(f"{name}: version {version} is built at {at.as_json()}")
            _wait_for_stream(settings, connection, compiled, report)  # 2
            if filled or not _state(settings, connection, compiled).proved(settings.cut_over_proof_seconds):
                result = reconcile(context, compiled)  # 3
                report(f"{name}: version {version} is {result.verdict} {result.reason}".rstrip())
        state = _state_now(settings, compiled)
        verdict = state.verdict
        if obstacle := state.obstacle(settings.cut_over_proof_seconds):
            return Built(name, version, filled, verdict, reason=obstacle)
        if moves and (state.held or state.share):
            return Built(name, version, filled, verdict, reason=_HELD if state.held else _SHARED)
        if moves:
            cut_over(settings, name, version, doer=doer)  # 4
            report(f"{name}: readers see version {version}")
        return Built(name, version, filled, verdict, moved=moves)
    except NotReady as waits:
        return Built(name, version, filled, verdict, reason=str(waits))
    except Exception as error:
        log.exception("version %s of %s could not be built, proved or shown", version, name)
        return Built(name, version, filled, verdict, reason=describe(error), failed=True)


def fill(rebuilder: Rebuilder) -> Positions:
    """Store a rebuild at the archive's positions as the version's rows, and return the positions.

    Raises:
        CodeChanged: the view's code is not the code that made its table.
        NotMade: the view has no table.
        NotReady: the archive contains no record of the view's topics yet.
        Stale: the version has rows already, the log's clock is not known, or an erasure has changed the archive since.
            Run it again.
    """
    connection, compiled = rebuilder.connection, rebuilder.compiled
    table.require_same_code(connection, compiled)
    at, epochs = archived_reach(rebuilder.context.settings, compiled.view.topics)
    if not at.offsets:
        raise NotReady(f"the archive contains no record of the topics of {compiled.name} yet")
    began, erasures = time.monotonic(), ledger.rewritten(connection)
    staged = rebuilder.exclude_and_retry(
        at, lambda: rebuilder.countable_events(Positions(), at), lambda: rebuilder.stage_rows(at)
    )
    now = rebuilder.now(at)
    if merge.stored_clock(connection, compiled, at) != now:
        clock.replace_ticks(connection, at.ids[clock.TOPIC], rebuilder.source.ticks(at), at, compiled.view.reads)
    seconds, readings = time.monotonic() - began, rebuilder.readings
    built = Merge(Positions(), at, staged, prepare_seconds=seconds, readings=readings, epochs=epochs, erasures=erasures)
    with connection.transaction():
        allow_pauses(connection)
        merge.lock(connection, compiled)
        if merge.positions(connection, compiled).offsets:
            raise Stale(f"Version {compiled.view.version} of {compiled.name} was built by another process meanwhile.")
        merge.require_erased(connection, compiled, built)
        if merge.stored_clock(connection, compiled, at) != now:
            raise Stale(f"The log's clock at the positions of {compiled.name} is not stored. Build it again.")
        rebuilder.merge_staged("state", staged)
        merge.drop_expired(connection, compiled, "state", at, now)
        merge.advance(connection, compiled, built)
        outbox.record_changes(connection, compiled)
        merge.tally(connection, compiled, built, now)
        faults.reach("version.filled")
    return at


def _wait_for_stream(settings: Settings, connection: Connection, compiled: CompiledView, report: Report) -> None:
    """Wait until the stream has brought the version as far as the rows that readers see.

    Raises:
        NotReady: it has not in the time that a comparison waits for the archive.
    """
    known = -1

    def is_level() -> bool:
        nonlocal known
        state = _state(settings, connection, compiled)
        if state.behind not in (0, known):
            report(f"{compiled.name}: version {state.version} lacks {state.behind:,} records that readers see")
        known = state.behind
        return state.runs and not state.behind

    if not wait.poll(is_level, settings.archive_wait_seconds, _POLL_SECONDS):
        raise NotReady(
            f"Version {compiled.view.version} of {compiled.name} still lacks {known:,} records that readers see. "
            f"The next run goes on. Is its stream running?"
        )


def _state_now(settings: Settings, compiled: CompiledView) -> VersionState:
    with connect(settings) as connection:
        return _state(settings, connection, compiled)


def _state(settings: Settings, connection: Connection, compiled: CompiledView) -> VersionState:
    found = version_states(settings, connection, [compiled.name])
    wanted = [each for each in found if each.version == compiled.view.version]
    if not wanted:
        raise NotReady(f"No application has deployed version {compiled.view.version} of {compiled.name} yet.")
    return wanted[0]
