"""Deploys an application's views: loads their files, makes their tables, and records the views that cannot run.

A deployment is repeated in the running process when a file or a topic has changed. A view whose code is unchanged is
left alone, so its worker can continue with a merge during the deployment. A batch-only view gets its tables here and no
worker: `truelog.serving.batch_views` builds it. Nor has a version a worker that readers will move to, until it is built
(`truelog.versions`). The versions that they see, or may return to, run beside the declared version.
"""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import psycopg
from pyspark.sql import SparkSession

from truelog.control import application, lease, log_cuts, view_status, view_versions
from truelog.control.lease import Holder
from truelog.control.log_cuts import ReaderState
from truelog.control.view_loader import LoadedViews, load_stored, load_views
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


_Version = tuple[str, int | None]  # None if the view's file cannot be loaded


@dataclass
class ViewDeployment:
    """The views of one application. `deployed` contains the versions that can run, by the names of their tables."""

    settings: Settings
    spark: SparkSession
    connection: Connection
    holder: Holder
    library: str  # digest of the library that this process runs
    deployed: dict[str, CompiledView] = field(default_factory=dict)
    _refused: dict[_Version, str] = field(default_factory=dict)
    _begun: bool = False
    _declared: dict[str, int] = field(default_factory=dict)  # the versions that the files declare
    _beside: set[tuple[str, int]] = field(default_factory=set)  # the versions that run beside them, as planned
    _unbuilt: set[tuple[str, int]] = field(default_factory=set)
    _unshown: list[CompiledView] = field(default_factory=list)  # whose readers still see the former version
    _show_due: float = 0.0
    _beyond: dict[str, Positions] = field(default_factory=dict)  # by version: its positions past the end of the log
    _awaited: str = ""  # the code with which a version waits for a release

    def deploy(self, types: EventTypes, examine: Callable[[set[str], EventTypes], TopicHealth]) -> TopicHealth:
        """Deploy the application's views and record the views whose files, tables or topics do not allow them to run.

        Return the health of the topics that the views read, and of `ticks`, which wakes the application. The digest is
        taken before the files are read: see `application.release_due`.
        """
        name = self.holder.application
        digest = application.source_digest(self.settings, self.library)
        found = load_views(self.spark, self.settings, types, application.views_of(self.settings, name))
        kept, refused = self._load_beside(types, found)
        streamed = [each for each in (*found.compiled, *kept) if not each.view.batch_only]
        health = examine({clock.TOPIC, *(t for each in streamed for t in each.view.topics)}, types)
        ends = topics.end_offsets(self.settings, health.earliest.ids)
        ready, sources = dict[str, CompiledView](), dict[tuple[str, int], str]()
        self._unshown, self._beyond, self._awaited = [], {}, ""
        for compiled in (*found.compiled, *kept):
            version = compiled.name, compiled.view.version
            unfit = self._unfit(compiled, health, ends) or self._unreleased(compiled, found.code)
            if reason := unfit or self._deploy_table(compiled):
                refused[version] = reason
                continue
            if compiled.name in found.sources and compiled in found.compiled:
                sources[version] = found.sources[compiled.name]
            if not compiled.view.batch_only:
                ready[compiled.own.name] = self._unchanged(compiled) or compiled
        self._unbuilt = view_versions.unbuilt(self.connection)
        ready = {t: each for t, each in ready.items() if (each.name, each.view.version) not in self._unbuilt}
        self._record_release(found.code, digest, sources)
        declared: list[_Version] = [(each.name, each.view.version) for each in found.compiled]
        self._record([*declared, *((view, None) for view in found.refused)], ready, refused)
        self.deployed, self._refused = ready, refused
        return health

    def _record_release(self, code: str, digest: str, sources: Mapping[tuple[str, int], str]) -> None:
        """Record the code, and the files of these versions. A release names the views whose files have changed."""
        with self.connection.transaction():  # otherwise, the application would seem to run other code than it should
            new = {each for each, text in sources.items() if view_versions.record_source(self.connection, *each, text)}
            changed = {view for view, _ in new}
            application.set_code(self.connection, self.holder.application, code, digest, changed=changed)
            lease.record_code(self.connection, self.holder, code)

    def versions_changed(self, connection: Connection) -> str:
        """Which versions should run now that do not, or run and should not, or an empty string."""
        if self._awaited and application.is_released(connection, self.settings, self.holder.application, self._awaited):
            return "a release has found that the library makes the same code"
        changed = (self._find_beside(connection) ^ self._beside) | (view_versions.unbuilt(connection) ^ self._unbuilt)
        return ", ".join(f"version {version} of {view} has changed" for view, version in sorted(changed))

    def _load_beside(self, types: EventTypes, found: LoadedViews) -> tuple[list[CompiledView], dict[_Version, str]]:
        """The versions that stay fresh although the files declare other ones, and the reasons for all refused views."""
        self._declared = {each.name: each.view.version for each in found.compiled}
        self._beside = self._find_beside(self.connection)
        stored = view_versions.stored(self.connection, self._beside)
        kept, unloaded = load_stored(self.spark, self.settings, types, stored)
        refused: dict[_Version, str] = {(view, None): reason for view, reason in found.refused.items()}
        return kept, refused | {(each.view, each.version): reason for each, reason in unloaded.items()}

    def _find_beside(self, connection: Connection) -> set[tuple[str, int]]:
        """The versions that should run beside the declared versions."""
        views = application.views_of(self.settings, self.holder.application)
        fresh = view_versions.beside(self.settings, connection, views)
        return {(view, version) for view, version in fresh if self._declared.get(view, version) != version}

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
        before = self.deployed.get(compiled.own.name)
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
        if compiled.own.name not in self.deployed and not compiled.view.batch_only:
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

    def _unreleased(self, compiled: CompiledView, code: str) -> str:
        """Why this process cannot create the version, or an empty string.

        It does not read a changed library again. The version would have the fingerprint of the former one for ever.
        """
        if (
            view_versions.is_made(self.connection, compiled.name, compiled.view.version)
            or application.library_digest() == self.library
            or application.is_released(self.connection, self.settings, self.holder.application, code)
        ):
            return ""
        self._awaited = code
        return "the library has changed: the version is created after the next release (DAG `streams`)"

    def _cut_short(self, compiled: CompiledView, ends: Positions) -> str:
        """Why the view cannot go on: the log has lost its end and is still shorter than the view's positions.

        No query may begin past the end of the log. The other views go on, and a recorded cut can be accepted at once.
        """
        at = merge.positions(self.connection, compiled)
        short = [r for r in ends.ranges_to(at.only(ends.ids)) if at.ids[r.topic] == ends.ids[r.topic]]
        if not short:
            return ""
        self._beyond[compiled.own.name] = Positions.of_rows(
            (r.topic, r.partition, r.end, ends.ids[r.topic]) for r in short
        )
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
        self, declared: list[_Version], ready: Mapping[str, CompiledView], refused: Mapping[_Version, str]
    ) -> None:
        """Record the state of each version, except of versions that continue: their workers report their states."""
        name = self.holder.application
        running: dict[_Version, CompiledView] = {(each.name, each.view.version): each for each in ready.values()}
        if not self._begun:
            view_status.begin_run(self.connection, name, {})
            self._begun = True
        view_status.forget_others(self.connection, name, [*running, *refused, *self._unbuilt.intersection(declared)])
        view_status.declare(self.connection, name, declared)
        for view, number in self._unbuilt.intersection(declared):
            view_status.record_unbuilt(self.connection, name, view, number)
        for version, compiled in running.items():
            if self.deployed.get(compiled.own.name) is not compiled:
                self._record_state(version, "", declared)
        for version, reason in refused.items():
            if self._refused.get(version) != reason:
                log.error("%s is stalled: %s", version[0], reason)
            self._record_state(version, reason, declared)

    def _record_state(self, version: _Version, reason: str, declared: list[_Version]) -> None:
        record = view_status.record_state if version in declared else view_status.record_beside
        record(self.connection, self.holder.application, *version, reason)


def _code(compiled: CompiledView) -> tuple[str, int, bool, bool]:
    """What makes the worker of a view need another declaration."""
    return compiled.fingerprint, compiled.view.version, compiled.view.publish, compiled.view.reads_clock


def _suspended(compiled: CompiledView, bad_topics: Mapping[str, str]) -> str:
    """Why the view cannot run although its code can, or an empty string."""
    return " ".join(
        f"{topic} is suspended: {bad_topics[topic]}" for topic in compiled.view.topics if topic in bad_topics
    )
