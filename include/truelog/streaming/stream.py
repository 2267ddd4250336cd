"""The stream application: a long-running process that keeps its views up to date with the log.

A changed declaration, and a topic that becomes bad or good again, end the query but not the process: the application
plans again and starts a new query.

The Spark checkpoint is scratch data: each query creates a new checkpoint and begins at the furthest positions that any
view has committed. Views behind these positions catch up on their own, and each view applies only the records of a
batch that it has not merged yet. Each batch is decoded once for all views.
"""

import logging
import threading
import time
from collections.abc import Callable, Collection, Hashable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, as_completed, wait
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import cache, partial
from itertools import islice
from pathlib import Path

import psycopg
from pyspark.sql import DataFrame

from truelog.batch.log_with_archive import archived_and_compacted
from truelog.control import application, event_registry, lease, log_cuts
from truelog.erasure import ledger
from truelog.kernel import clock, merge
from truelog.kernel.apply_batch import BatchApplier, EventRange
from truelog.kernel.log_guard import LogGuard
from truelog.lineage.job import Catalogue, Job
from truelog.lineage.run import ApplicationRuns
from truelog.log import records, topics
from truelog.log.leader_epochs import Epochs
from truelog.log.positions import Positions
from truelog.log.tick_reader import read_ticks
from truelog.log.topic_health import TopicGuard
from truelog.schema.event import EventTypes
from truelog.schema.event_version import readings_of
from truelog.spark.session import session
from truelog.storage.database import connect
from truelog.streaming.batch_files import BatchFiles
from truelog.streaming.change_watch import BatchGate, ChangeWatch
from truelog.streaming.patience import OUTAGES, Patience, outlast_outage
from truelog.streaming.portions import Portions, records_are_reread
from truelog.streaming.recent_batches import close_after
from truelog.streaming.spark_offsets import batch_range, emptied, fresh_checkpoint
from truelog.streaming.stream_topics import StreamTopics
from truelog.streaming.view_deployment import ViewDeployment
from truelog.streaming.view_task import StreamedView
from truelog.streaming.view_worker import ViewWorker
from truelog.support import faults
from truelog.support.settings import Settings
from truelog.tables.compiled_view import needed_columns

_MAX_VIEWS = 256  # threads; a thread is created only when a view needs one
_RECORDS_IN_GRACE = 100_000  # the largest batch that waits no longer than the setting says

_Decoded = tuple[EventRange, list["Future[None]"]]

log = logging.getLogger("truelog.stream")


class Stream:
    """The stream of one application, which advances the application's views from their committed positions."""

    def __init__(self, settings: Settings, name: str, stop: threading.Event) -> None:
        self.settings, self.application, self.stop = settings, name, stop
        library = application.library_digest()  # now, because the files may change while it waits for its lease
        begin_spark = cache(partial(session, settings, f"truelog {name}"))
        self.lease = outlast_outage(lambda: lease.take_lease(settings, name), stop, begin_spark)
        self.spark = begin_spark()
        self.batch_files = BatchFiles(settings, self.spark, emptied(settings.home / "scratch" / f"{name}-batches"))
        self.interruptions = 0  # interruptions of the lease when `connection` was opened
        self.connection = outlast_outage(lambda: connect(settings, autocommit=True, writer=name), stop)
        self.applier = BatchApplier(settings, self.lease.holder, LogGuard(TopicGuard(settings)))
        self.portions = Portions(settings, self.spark, self.applier.guard, self.batch_files)
        self.deployment = ViewDeployment(settings, self.spark, self.connection, self.lease.holder, library)
        self.pool = ThreadPoolExecutor(_MAX_VIEWS, thread_name_prefix="view")
        self.workers: list[ViewWorker] = []
        self.stream_topics = StreamTopics(settings, name)
        self.types: EventTypes = {}
        self.topics: tuple[str, ...] = ()
        self.begin = Positions()
        self.checkpoint = Path()
        self.patience = Patience(self.lease, stop)
        self.runs = ApplicationRuns(settings)

    def run(self) -> None:
        """Follow the log until `stop` is set or the query fails."""
        with self.runs.until_end():
            self._run()

    def _run(self) -> None:
        while not self.stop.is_set():
            try:
                self._follow_as_declared()
            except OUTAGES as error:
                self.patience.wait(error)
        for worker in self.workers:
            worker.view.stopping.set()
        self.pool.shutdown()
        self.lease.release()

    def _follow_as_declared(self) -> None:
        """Follow the log until `stop` is set, the query fails, or something has changed."""
        faults.reach("stream.planning")
        if self.connection.closed:
            self._reconnect()
        self.stream_topics = StreamTopics(self.settings, self.application)
        watch = ChangeWatch(self.settings, self.application, self._changed, self.deployment.versions_changed)
        self._plan()
        if self.topics:
            self._follow(watch)
        else:
            self.patience.progressed()
            watch.wait(self.stop)

    def _changed(self) -> str:
        """Why the application must plan again, or an empty string."""
        return self.stream_topics.changed() or self.deployment.reached()

    def _plan(self) -> None:
        """Load the declarations, examine the topics, and give each view that can run a worker."""
        self.types = event_registry.confirmed_types(self.settings)
        health = self.deployment.deploy(self.types, self.stream_topics.examine)
        former = {each.compiled.own.name: each for each in self.workers}
        self.workers = []
        for name, compiled in self.deployment.deployed.items():
            if name in former and former[name].compiled is compiled:
                self.workers.append(former.pop(name))
            else:
                repeated = self.batch_files.plans_of(compiled)
                self.workers.append(ViewWorker(StreamedView(self.portions, self.applier, compiled, repeated)))
        for removed in former.values():
            removed.retire()
        self.portions.declare(self.types, needed_columns(each.compiled for each in self.workers))
        read = {topic for each in self.workers for topic in each.compiled.view.topics}
        self.topics = tuple(sorted({clock.TOPIC, *read} & health.earliest.ids.keys()))
        self.begin = self._begin(health.earliest.only(self.topics), set(self.topics) - read)
        self.runs.follow(self._jobs)

    def _jobs(self) -> dict[Hashable, Job]:
        """The job of each view that can run, for lineage."""
        catalogue = Catalogue(self.settings, self.spark, self.types)
        views = [each.compiled for each in self.workers]
        return {(each.own.name, each.fingerprint): catalogue.stream(self.application, each) for each in views}

    def _follow(self, watch: ChangeWatch) -> None:
        """Follow the log from `begin` until `stop` is set, the query fails, or the declarations or topics change."""
        log.info("%s follows %s from %s", self.application, ", ".join(self.topics), self.begin.as_json())
        self.checkpoint = fresh_checkpoint(self.settings.home / "scratch" / self.application)
        gate = BatchGate()

        def on_batch(_: DataFrame, batch_id: int) -> None:
            with gate.batch() as may_run:
                if may_run:
                    self._on_batch(batch_id)

        self._offer(EventRange({}, self.begin, self.begin))  # after a batch, it would take the batch back
        limits = {"maxOffsetsPerTrigger": str(self.settings.max_offsets_per_trigger)}
        query = (
            records.read_stream(self.spark, self.settings, self.topics, self.begin, limits)
            .writeStream.foreachBatch(on_batch)
            .option("checkpointLocation", self.checkpoint.as_uri())
            .trigger(processingTime=f"{self.settings.stream_trigger_seconds} seconds")
            .start()
        )
        watch.follow(query, gate, self.stop)

    def _on_batch(self, batch_id: int) -> None:
        faults.reach("batch.begun")
        began = time.monotonic()
        begin, end = batch_range(self.checkpoint, batch_id, self.begin, self.settings.names)
        self.stream_topics.reached = begin
        self._outlasting(lambda: event_registry.require_known(self.settings, self.connection, self.types, end))
        epochs = self.applier.guard.take_epochs(end)
        if any(each.compiled.view.reads_clock for each in self.workers):
            self._store_ticks(begin, end)
        with self._decoded(begin, end, epochs) as (batch, tasks):
            started = self._offer(batch)
            tasks.extend(started)
            soon_done = [each.future for each in self.workers if each.future and each.soon_free(end)]
            wait_for_views(
                {*started, *soon_done}, len(self.workers) // 2, self._grace(begin, end), self._most_wait(batch)
            )
        for each in self.workers:
            if each.future and each.future.done():
                each.future.result()  # raises only Fenced, which ends the process
        self.stream_topics.reached = end
        self._outlasting(self._record_batch)
        self.runs.go_on()
        self.patience.progressed()
        self.stop.wait(rest_after(self.settings, batch, time.monotonic() - began))

    def _grace(self, begin: Positions, end: Positions) -> float:
        """How long the batch waits for its views, in seconds.

        A large batch waits longer. Otherwise no view would finish a backlog's batch in time, and each would have to
        read the next records on its own.
        """
        return self.settings.batch_grace_seconds * max(1.0, begin.records_to(end) / _RECORDS_IN_GRACE)

    def _most_wait(self, batch: EventRange) -> float:
        """How long a large batch waits while most views work on it, in seconds: half of what counts as a hang.

        Late views share the files of a small batch anyway, so it need not wait.
        """
        is_large = batch.events and batch.files is None
        return self.settings.hang_seconds / 2 if is_large else 0.0

    @contextmanager
    def _decoded(self, begin: Positions, end: Positions, epochs: Epochs | None) -> "Iterator[_Decoded]":
        """The batch, read once however many views need it. Its events are kept until the added tasks are done.

        If no view reads a topic that has moved, as on a quiet log, where only ticks arrive, there is nothing to read.
        """
        views = [worker.compiled for worker in self.workers]
        types = {topic: self.types[topic] for each in views for topic in each.view.reads if topic in end.offsets}
        ranges, tasks = begin.ranges_to(end.only(types)), list[Future[None]]()
        batch = EventRange({}, begin, end, readings_of(self.types.values()), epochs)
        kept = ExitStack()
        try:
            is_small = self.batch_files.are_for(ranges)
            files = self.batch_files.write(kept, types, ranges, needed_columns(views)) if is_small and ranges else None
            if files is not None:
                batch = replace(batch, events=self.batch_files.frames(files), files=files)
            if files is not None or (is_small and not ranges):
                batch = replace(batch, is_proved=self.applier.guard.is_proved(epochs, end))  # once for all views
                self.portions.recent.add(batch, kept.pop_all(), tasks)
            elif ranges:
                decoded = records.read(self.spark, self.settings, types, ranges, needed_columns(views))
                if records_are_reread(views):
                    kept.callback(decoded.persist().unpersist)
                batch = replace(batch, events=records.events(decoded, types))
            yield batch, tasks
        finally:
            close_after(tasks, kept)  # also if the batch fails: the views that have begun with it go on

    def _store_ticks(self, begin: Positions, end: Positions) -> None:
        """Store the batch's ticks, which the views with `keep` need."""
        ranges = begin.ranges_to(end.only([clock.TOPIC]))
        require_unchanged = partial(self.applier.guard.require_unchanged, end.only([clock.TOPIC]))

        def store() -> None:
            ticks = read_ticks(self.settings, self.types[clock.TOPIC], ranges)
            clock.store_tick_rows(self.connection, end.ids[clock.TOPIC], ticks, require_unchanged)

        self._outlasting(store)

    def _record_batch(self) -> None:
        for each in self.workers:
            each.report_hang(self.connection)
        self.deployment.show_later()
        lease.record_batch(self.connection, self.lease.holder)

    def _outlasting(self, work: Callable[[], None]) -> None:
        """Do some work in the database. After an outage, go on under the lease taken again, and repeat the work."""
        try:
            work()
        except psycopg.OperationalError:
            if not self.lease.outlast(self.interruptions, self.stop):
                raise
            self._reconnect()
            self._offer(EventRange({}, self.stream_topics.reached, self.stream_topics.reached))  # no batch may follow
            self._outlasting(work)

    def _reconnect(self) -> None:
        self.interruptions = self.lease.interruptions
        self.connection.close()
        self.connection = self.deployment.connection = connect(self.settings, autocommit=True, writer=self.application)
        for each in self.workers:
            each.forget_outage()

    def _begin(self, earliest: Positions, unread: set[str]) -> Positions:
        """The furthest position of any view in each topic; views behind that position catch up on their own.

        A topic that no view reads begins at its end. `ticks` may be such a topic; its records wake the application.
        Nothing begins past the end of the log, which may have lost records: Spark could not start.
        """
        # Kafka may lack records below these positions, or still have erased ones, so views catch up from the archive.
        compacted = archived_and_compacted(self.settings, earliest.offsets)
        begin = earliest.latest(compacted.only(t for t in compacted.ids if compacted.ids[t] == earliest.ids[t]))
        begin = begin.latest(log_cuts.trusted_from(self.connection, earliest))
        begin = begin.latest(ledger.erased_below(self.connection, earliest))
        for worker in self.workers:
            at = merge.positions(self.connection, worker.compiled)
            begin = begin.latest(at.only(t for t in at.ids if at.ids[t] == begin.ids.get(t)))
        ends = topics.end_offsets(self.settings, self.topics)
        return begin.latest(ends.only(unread)).earliest(ends)

    def _offer(self, batch: EventRange) -> "list[Future[None]]":
        """Offer a batch to all views, and return the tasks of the views that were free."""
        return [task for each in self.workers if (task := each.offer(batch, self.pool))]


def wait_for_views(tasks: "Collection[Future[None]]", most_busy: int, grace: float, most_seconds: float) -> None:
    """Wait for the views of a batch: for the grace, or twice as long as until at most `most_busy` work on it.

    So a slow view delays the others by the grace only. But if most views need longer than the grace, as on slow cores,
    the batch is large for all of them. Without this wait, each would read and decode the next records on its own, which
    costs more than the batch, so none would catch up. It ends after `most_seconds` if they exceed the grace.
    """
    began, ended = time.monotonic(), as_completed(tasks, timeout=max(grace, most_seconds))
    with suppress(TimeoutError):
        for _ in islice(ended, max(0, len(tasks) - most_busy)):
            pass
    took = time.monotonic() - began
    wait(tasks, timeout=max(grace, min(2 * took, most_seconds)) - took)


def rest_after(settings: Settings, batch: EventRange, worked: float) -> float:
    """How long to let the log grow after a batch that took so long, in seconds.

    Most of a small batch's cost does not depend on its events, so an application that works half of the time has larger
    batches and costs less. A quiet log has no such batch, so its next event is answered at once. After a large batch,
    there is no rest: the application has to catch up.
    """
    return min(worked, settings.stream_rest_seconds) if batch.files is not None else 0.0
