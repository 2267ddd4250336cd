"""Stream: a long-running application that keeps its views up with the log.

Spark's checkpoint is scratch. Every start uses a fresh one and begins at the furthest of the positions that the views
committed; those behind catch up on their own, and each view takes the part of a batch that it still lacks. Batches are
decoded once, for all views.
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
from truelog.views.compiled_view import Compiled

_RECORDS_A_TASK = 20_000

log = logging.getLogger("truelog.stream")


class Stream:
    """The views of one application, from their committed positions on."""

    def __init__(self, settings: Settings, name: str) -> None:
        self.settings, self.application = settings, name
        self.lease = lease.take_lease(settings, name)
        self.spark = session(settings, f"truelog {name}")
        self.types = load_events()
        self.connection = connect(settings, autocommit=True, writer=self.application)
        self.applier = BatchApplier(settings, self.lease.holder)
        self.followers = [ViewWorker(self.spark, self.applier, self.types, each) for each in self._deployed()]
        self.topics = tuple(sorted({clock.TOPIC, *(t for f in self.followers for t in f.compiled.view.topics)}))
        self.pool = ThreadPoolExecutor(max(1, len(self.followers)), thread_name_prefix="view")
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
        for follower in self.followers:
            follower.ending.set()
        self.pool.shutdown()
        self.lease.release()
        if failed is not None:
            raise failed

    def _on_batch(self, raw: DataFrame, batch_id: int) -> None:
        faults.reach("batch.begun")
        begin, end = batch_range(self.checkpoint, batch_id, self.begin)
        types = {topic: self.types[topic] for topic in self.topics}
        decoded = records.decoded(raw.coalesce(self._tasks(begin, end)), types).persist()
        piece = EventRange(records.events(decoded, types), begin, end)
        if any(f.compiled.view.keep for f in self.followers):
            clock.store_ticks(self.connection, end.ids[clock.TOPIC], piece.events[clock.TOPIC])
        started = self._offer(piece)
        near = [each.task for each in self.followers if each.task and each.near(piece)]
        wait([*started, *near], timeout=self.settings.batch_grace_seconds)
        if late := [task for task in started if not task.done()]:
            threading.Thread(target=lambda: (wait(late), decoded.unpersist()), daemon=True).start()
        else:
            decoded.unpersist()
        for each in self.followers:
            if each.task and each.task.done():
                each.task.result()  # what it raises, which is only Fenced, ends the process
        lease.record_batch(self.connection, self.lease.holder)

    def _tasks(self, begin: Positions, end: Positions) -> int:
        """In how many tasks a batch is decoded: a small one costs more by its tasks than by its records.

        One that is decoded in one task is grouped by each view in one, too, without a shuffle.
        """
        batch = sum(each.end - each.start for each in begin.ranges_to(end))
        return max(1, min(self.spark.sparkContext.defaultParallelism, batch // _RECORDS_A_TASK))

    def _deployed(self) -> list[Compiled]:
        """The application's views whose tables this code may go on with; the others stand still, and it is said."""
        found_from = application.digest(self.settings)  # before the files are read: see `application.release_due`
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
        application.set_code(self.connection, self.application, found.code, found_from)
        lease.record_code(self.connection, self.lease.holder, found.code)
        view_status.begin_run(
            self.connection, self.application, {each.name: each.view.version for each in found.compiled}
        )
        for name, reason in refused.items():
            log.error("%s stands still: %s", name, reason)
            version = next((each.view.version for each in found.compiled if each.name == name), None)
            view_status.record_state(self.connection, self.application, name, version, reason)
        return ready

    def _begin(self) -> Positions:
        """Of each topic the furthest position of its readers: those that are behind catch up by themselves.

        A topic that none of the views reads (ticks, which wake the application) begins at its end.
        """
        topics.require_log_append_time(self.settings, self.topics)
        begin = topics.earliest_offsets(self.settings, self.topics)
        read: set[str] = set()
        for follower in self.followers:
            stands = follower.positions()
            begin = begin.latest(stands.only(t for t in stands.ids if stands.ids[t] == begin.ids[t]))
            read.update(follower.compiled.view.topics)
        return begin.latest(topics.end_offsets(self.settings, set(self.topics) - read))

    def _offer(self, piece: EventRange) -> "list[Future[None]]":
        started: list[Future[None]] = []
        for each in self.followers:
            if each.offer(piece):
                each.task = self.pool.submit(each.follow, piece)
                started.append(each.task)
        return started
