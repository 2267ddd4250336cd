"""Deploys an application's views: loads their files, makes their tables, and records the views that cannot run.

A deployment is repeated in the running process when a file or a topic has changed. A view whose code is unchanged is
left alone, so its worker can continue with a merge during the deployment. A batch-only view gets its tables here and no
worker: `truelog.serving.batch_views` builds it.
"""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import psycopg
from pyspark.sql import SparkSession

from truelog.control import application, lease, log_cuts, view_status
from truelog.control.lease import Holder
from truelog.control.log_cuts import ReaderState
from truelog.control.view_loader import load_views
from truelog.kernel import clock, merge
from truelog.log import leader_epochs, topics
from truelog.log.positions import Positions
from truelog.log.topic_health import TopicHealth
from truelog.schema.event import EventTypes
from truelog.storage.database import Connection
from truelog.streaming.patience import OUTAGES
from truelog.support.errors import LogCut, PartitionsAdded, TruelogError
from truelog.support.settings import Settings
from truelog.tables import deploy as table
from truelog.tables import stage
from truelog.tables.compiled_view import CompiledView

# What a declaration asks too much of PostgreSQL for, such as an index on long texts. psycopg groups it with outages.
_TOO_LARGE = (
    psycopg.errors.ProgramLimitExceeded,
    psycopg.errors.StatementTooComplex,
    psycopg.errors.TooManyColumns,
    psycopg.errors.TooManyArguments,
)
_SHOW_SECONDS = 5.0  # between attempts to show a version, because readers and merges queue behind each attempt

log = logging.getLogger("truelog.stream")


@dataclass
class ViewDeployment:
    """The views of one application. `deployed` contains the views that can run, by name."""

    settings: Settings
    spark: SparkSession
    connection: Connection
    holder: Holder
    library: str  # digest of the library that this process runs
    deployed: dict[str, CompiledView] = field(default_factory=dict)
    _refused: dict[str, str] = field(default_factory=dict)
    _begun: bool = False
    _unshown: list[CompiledView] = field(default_factory=list)  # whose readers still see the former version
    _show_due: float = 0.0
    _beyond: dict[str, Positions] = field(default_factory=dict)  # by view: its positions past the end of the log

    def deploy(self, types: EventTypes, examine: Callable[[set[str], EventTypes], TopicHealth]) -> TopicHealth:
        """Deploy the application's views and record the views whose files, tables or topics do not allow them to run.

        Return the health of the topics that the views read, and of `ticks`, which wakes the application. The digest is
        taken before the files are read: see `application.release_due`.
        """
        name = self.holder.application
        digest = application.source_digest(self.settings, self.library)
        found = load_views(self.spark, self.settings, types, application.views_of(self.settings, name))
        streamed = [each for each in found.compiled if not each.view.batch_only]
        health = examine({clock.TOPIC, *(t for each in streamed for t in each.view.topics)}, types)
        ends = topics.end_offsets(self.settings, health.earliest.ids)
        refused, ready = dict(found.refused), dict[str, CompiledView]()
        self._unshown, self._beyond = [], {}
        for compiled in found.compiled:
            if reason := self._unfit(compiled, health, ends) or self._deploy_table(compiled):
                refused[compiled.name] = reason
            elif not compiled.view.batch_only:
                ready[compiled.name] = self._unchanged(compiled) or compiled
        with self.connection.transaction():  # otherwise, the application would seem to run other code than it should
            application.set_code(self.connection, name, found.code, digest)
            lease.record_code(self.connection, self.holder, found.code)
        self._record({each.name: each.view.version for each in streamed}, ready, refused)
        self.deployed, self._refused = ready, refused
        return health

    def show_later(self) -> None:
        """Let readers see the views whose readers held a lock during the deployment, if the locks are free now."""
        if self._unshown and time.monotonic() >= self._show_due:
            self._unshown = [each for each in self._unshown if not table.try_to_show(self.connection, each)]
            self._show_due = time.monotonic() + _SHOW_SECONDS

    def reached(self) -> str:
        """The views whose positions the log was too short for and has reached now, or an empty string."""
        if not (beyond := dict(self._beyond)):
            return ""
        ends = topics.end_offsets(self.settings, {topic for at in beyond.values() for topic in at.offsets})
        return ", ".join(f"the log has reached {view}" for view, at in beyond.items() if ends.covers(at))

    def _unchanged(self, compiled: CompiledView) -> CompiledView | None:
        """The deployed view, if the same code is deployed already."""
        before = self.deployed.get(compiled.name)
        return before if before is not None and _code(before) == _code(compiled) else None

    def _deploy_table(self, compiled: CompiledView) -> str:
        """Make or check the view's table. Return why the view cannot run, or an empty string."""
        try:
            if not table.deploy_table(self.connection, compiled):
                log.warning("%s: a query holds a lock, so readers see the new version later", compiled.name)
                self._unshown.append(compiled)
        except _TOO_LARGE as error:
            return str(error)
        except (*OUTAGES, psycopg.InterfaceError):  # the database is down, which says nothing about the view
            raise
        except Exception as error:  # a declaration may contain anything
            return (
                str(error) if isinstance(error, (TruelogError, psycopg.Error)) else f"{type(error).__name__}: {error}"
            )
        if compiled.name not in self.deployed and not compiled.view.batch_only:
            stage.sweep(self.connection, compiled)
        return ""

    def _unfit(self, compiled: CompiledView, health: TopicHealth, ends: Positions) -> str:
        """Why the topics do not allow a stream of the view, or an empty string."""
        if compiled.view.batch_only:
            return ""
        return (
            _suspended(compiled, health.bad)
            or self._cut_short(compiled, ends)
            or self._grown(compiled, health.earliest)
        )

    def _cut_short(self, compiled: CompiledView, ends: Positions) -> str:
        """Why the view cannot go on: the log has lost its end and is still shorter than the view's positions.

        No query may begin past the end of the log. The other views go on, and a recorded cut can be accepted at once.
        """
        at = merge.positions(self.connection, compiled)
        short = [r for r in ends.ranges_to(at.only(ends.ids)) if at.ids[r.topic] == ends.ids[r.topic]]
        if not short:
            return ""
        self._beyond[compiled.name] = Positions.of_rows((r.topic, r.partition, r.end, ends.ids[r.topic]) for r in short)
        now = leader_epochs.take_epochs(topics.client(self.settings), ends.only(at.ids))
        try:
            reader = ReaderState(compiled.name, at, merge.leader_epochs(self.connection, compiled))
            log_cuts.require_intact(self.settings, self.connection, reader, now)
        except LogCut as cut:
            return str(cut)
        return " ".join(
            f"{each.topic} {each.partition}: the log ends at {each.start}, before the view's position {each.end}. "
            "See the runbook of `positions_rewound`."
            for each in short
        )

    def _grown(self, compiled: CompiledView, earliest: Positions) -> str:
        """Why a view that depends on the order of the log cannot go on: a topic has got more partitions."""
        try:
            merge.require_same_partitions(compiled, merge.positions(self.connection, compiled), earliest)
        except PartitionsAdded as grown:
            return str(grown)
        return ""

    def _record(
        self, versions: Mapping[str, int], ready: Mapping[str, CompiledView], refused: Mapping[str, str]
    ) -> None:
        """Record the state of each view, except the views that continue: their workers report their states."""
        name = self.holder.application
        if not self._begun:
            view_status.begin_run(self.connection, name, dict(versions))
            self._begun = True
        view_status.forget_others(self.connection, name, [*ready, *refused])
        for view, compiled in ready.items():
            if self.deployed.get(view) is not compiled:
                view_status.record_state(self.connection, name, view, compiled.view.version)
        for view, reason in refused.items():
            if self._refused.get(view) != reason:
                log.error("%s is stalled: %s", view, reason)
            view_status.record_state(self.connection, name, view, versions.get(view), reason)


def _code(compiled: CompiledView) -> tuple[str, int, bool]:
    """What makes the worker of a view need another declaration."""
    return compiled.fingerprint, compiled.view.version, compiled.view.publish


def _suspended(compiled: CompiledView, bad_topics: Mapping[str, str]) -> str:
    """Why the view cannot run although its code can, or an empty string."""
    return " ".join(
        f"{topic} is suspended: {bad_topics[topic]}" for topic in compiled.view.topics if topic in bad_topics
    )
