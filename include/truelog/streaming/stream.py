"""The stream application: a long-running process that keeps its views up to date with the log.

The Spark checkpoint is scratch data: each start creates a new checkpoint and begins at the furthest positions that any
view has committed. Views behind these positions catch up on their own, and each view applies only the records of a
batch that it has not merged yet. Each batch is decoded once for all views.
"""

import logging
import threading
from concurrent.futures import Future, ThreadPoolExecutor, wait

import psycopg
from pyspark.sql import DataFrame

from truelog.control import application, lease, view_status
from truelog.control.view_loader import load_views
from truelog.kernel import clock, stage, table
from truelog.kernel.apply_batch import BatchApplier, EventRange
from truelog.log import records, topics
from truelog.log.positions import Positions
from truelog.schema.event import load_events
from truelog.spark.session import session
from truelog.storage.database import connect
from truelog.streaming import batch_metrics
from truelog.streaming.spark_offsets import batch_range, fresh_checkpoint
from truelog.streaming.view_worker import ViewWorker
from truelog.support import faults
from truelog.support.errors import CodeChanged
from truelog.support.settings import Settings
from truelog.views.compiled_view import CompiledView

_RECORDS_PER_TASK = 20_000

log = logging.getLogger("truelog.stream")


class Stream:
    """The stream of one application, which advances the application's views from their committed positions."""

    def __init__(self, settings: Settings, name: str) -> None:
        self.settings, self.application = settings, name
        self.lease = lease.take_lease(settings, name)
        self.spark = session(settings, f"truelog {name}")
        self.types = load_events()
        self.connection = connect(settings, autocommit=True, writer=self.application)
        self.applier = BatchApplier(settings, self.lease.holder)
        self.workers = [ViewWorker(self.spark, self.applier, self.types, each) for each in self._deployed()]
        self.topics = tuple(sorted({clock.TOPIC, *(t for worker in self.workers for t in worker.compiled.view.topics)}))
        self.pool = ThreadPoolExecutor(max(1, len(self.workers)), thread_name_prefix="view")
        self.begin = Positions()
        self.checkpoint = fresh_checkpoint(settings.home / "scratch" / name)

    def run(self, stop: threading.Event) -> None:
        """Follow the log until `stop` is set or the query fails."""
        self.begin = self._begin()
        log.info("%s follows %s from %s", self.application, ", ".join(self.topics), self.begin.as_json())
        query = (
            records.read_stream(self.spark, self.settings, self.topics, self.begin)
            .writeStream.foreachBatch(self._on_batch)
            .option("checkpointLocation", self.checkpoint.as_uri())
            .trigger(processingTime=f"{self.settings.stream_trigger_seconds} seconds")
            .start()
        )
        self._offer(EventRange({}, self.begin, self.begin))
        with batch_metrics.collecting_steps(self.settings, self.application, query):
            while query.isActive and not stop.is_set():
                query.awaitTermination(1)
        failed = query.exception()
        query.stop()
        for worker in self.workers:
            worker.stopping.set()
        self.pool.shutdown()
        self.lease.release()
        if failed is not None:
            raise failed

    def _on_batch(self, raw: DataFrame, batch_id: int) -> None:
        faults.reach("batch.begun")
        begin, end = batch_range(self.checkpoint, batch_id, self.begin)
        types = {topic: self.types[topic] for topic in self.topics}
        decoded = records.decoded(raw.coalesce(self._tasks(begin, end)), types).persist()
        batch = EventRange(records.events(decoded, types), begin, end)
        if any(worker.compiled.view.keep for worker in self.workers):
            clock.store_ticks(self.connection, end.ids[clock.TOPIC], batch.events[clock.TOPIC])
        started = self._offer(batch)
        soon_done = [each.task for each in self.workers if each.task and each.soon_free(batch)]
        wait([*started, *soon_done], timeout=self.settings.batch_grace_seconds)
        if late := [task for task in started if not task.done()]:
            threading.Thread(target=lambda: (wait(late), decoded.unpersist()), daemon=True).start()
        else:
            decoded.unpersist()
        for each in self.workers:
            if each.task and each.task.done():
                each.task.result()  # raises only Fenced, which ends the process
        lease.record_batch(self.connection, self.lease.holder)

    def _tasks(self, begin: Positions, end: Positions) -> int:
        """The number of tasks that decode a batch: in a small batch, the tasks cost more than the records.

        A batch decoded in one task needs no shuffle, because each view also groups the batch in one task.
        """
        count = sum(each.end - each.start for each in begin.ranges_to(end))
        return max(1, min(self.spark.sparkContext.defaultParallelism, count // _RECORDS_PER_TASK))

    def _deployed(self) -> list[CompiledView]:
        """The application's views whose tables this code can continue; the others are recorded as stalled."""
        digest = application.source_digest(self.settings)  # before the files are read: see `application.release_due`
        views = application.views_of(self.settings, self.application)
        found = load_views(self.spark, self.settings, self.types, views)
        refused, ready = dict(found.refused), []
        for compiled in found.compiled:
            try:
                table.deploy_table(self.connection, compiled)
            except (CodeChanged, psycopg.DatabaseError) as error:
                refused[compiled.name] = str(error)
                continue
            stage.sweep(self.connection, compiled)
            ready.append(compiled)
        application.set_code(self.connection, self.application, found.code, digest)
        lease.record_code(self.connection, self.lease.holder, found.code)
        view_status.begin_run(
            self.connection, self.application, {each.name: each.view.version for each in found.compiled}
        )
        for name, reason in refused.items():
            log.error("%s is stalled: %s", name, reason)
            version = next((each.view.version for each in found.compiled if each.name == name), None)
            view_status.record_state(self.connection, self.application, name, version, reason)
        return ready

    def _begin(self) -> Positions:
        """The furthest position of any view in each topic; views behind that position catch up on their own.

        A topic that no view reads begins at its end. `ticks` may be such a topic; its records wake the application.
        """
        topics.require_log_append_time(self.settings, self.topics)
        begin = topics.earliest_offsets(self.settings, self.topics)
        read: set[str] = set()
        for worker in self.workers:
            at = worker.load_positions()
            begin = begin.latest(at.only(t for t in at.ids if at.ids[t] == begin.ids[t]))
            read.update(worker.compiled.view.topics)
        return begin.latest(topics.end_offsets(self.settings, set(self.topics) - read))

    def _offer(self, batch: EventRange) -> "list[Future[None]]":
        started: list[Future[None]] = []
        for each in self.workers:
            if each.offer(batch):
                each.task = self.pool.submit(each.catch_up, batch)
                started.append(each.task)
        return started
