"""The archive application: appends each micro-batch of all topics to the archive.

1. Read the batch range from the Spark offset log, require that the types know every version that judges a record of
   the batch, and load the recorded log days.
2. Write the files on the executors, then prove that their topics were not created again meanwhile.
3. Record the log days that begin in the batch, under the lease.
4. Commit each topic's files and positions together (`truelog.archive.commit`).
5. Where a tick shows that a day has begun but no record began it, start the day at the archive's position. Topics that
   Kafka no longer has are among them: no record begins a day there, and readers wait until all topics have begun it.

At worst, a crash at any step leaves files that belong to no table and day starts that the replay finds again.
"""

import logging
import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cache, partial
from pathlib import Path

from pyiceberg.catalog import Catalog
from pyiceberg.table.metadata import TableMetadata
from pyspark.sql import DataFrame, SparkSession

from truelog.archive import log_day
from truelog.archive.commit import Append, commit
from truelog.archive.log_day import LogDays
from truelog.archive.table import archived_positions, open_catalog
from truelog.archive.writer import (
    ArchivedFile,
    ArchivedTick,
    FileWriter,
    WriterSettings,
    add_late_counts,
    blueprint,
    write_ranges,
)
from truelog.control import application, event_registry, lease
from truelog.control.application import ARCHIVE
from truelog.control.lease import Holder
from truelog.control.view_loader import archive_code
from truelog.kernel.clock import TOPIC
from truelog.lineage import job
from truelog.lineage.run import ApplicationRuns
from truelog.log.clock_guard import newest_tick
from truelog.log.leader_epochs import Epochs
from truelog.log.positions import Positions
from truelog.log.records import read_stream
from truelog.log.topic_health import TopicGuard, gone_topics
from truelog.relay.sampled_records import end_archived
from truelog.relay.spans import Spans, opened_spans
from truelog.schema.event import EventType, EventTypes
from truelog.spark.session import session
from truelog.storage.database import Connection, connect
from truelog.streaming.archive_topics import ArchiveTopics, Assessment, require_uncut
from truelog.streaming.change_watch import BatchGate, ChangeWatch
from truelog.streaming.patience import OUTAGES, Patience, outlast_outage
from truelog.streaming.spark_offsets import batch_range, fresh_checkpoint
from truelog.support import faults
from truelog.support.errors import LeaderChanged, ServiceDown, TopicRefused
from truelog.support.settings import KafkaUser, Settings

# Many small files permanently slow down every reader; a very large batch takes a long time to repeat after a crash.
_MIN_BATCH, _MAX_BATCH = 200_000, 1_000_000  # records
_POLL_SECONDS = 1
_TOPICS_AT_ONCE = 4
_READS = 3  # of one batch, if leaders change meanwhile

log = logging.getLogger("truelog.archive")


@dataclass
class ArchiveApp:
    """The `foreachBatch` function, which begins at `begin` and may write while `holder` has the lease."""

    settings: Settings
    catalog: Catalog
    types: EventTypes
    tables: Mapping[str, TableMetadata]
    begin: Positions
    checkpoint: Path
    holder: Holder
    guard: TopicGuard
    reached: Epochs  # the leader epochs in which the archive reached its positions
    patience: Patience
    runs: ApplicationRuns
    clock: datetime | None  # the newest tick's time, past which no record may begin a log day by more than a day
    gate: BatchGate = field(default_factory=BatchGate)
    pending_ticks: list[ArchivedTick] = field(default_factory=list)  # ticks with ends beyond the archive's positions
    quiet_day: int = -1  # the newest log day that has started in topics that are gone
    spans: Spans = field(default_factory=Spans)

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        with self.gate.batch() as may_run:
            if may_run:
                self._archive(frame.sparkSession, batch_id)

    def _archive(self, spark: SparkSession, batch_id: int) -> None:
        with closing(connect(self.settings, autocommit=True, writer=ARCHIVE)) as connection:
            self._archive_by(connection, spark, batch_id)

    def _archive_by(self, connection: Connection, spark: SparkSession, batch_id: int) -> None:
        begin, end = batch_range(self.checkpoint, batch_id, self.begin, self.settings.names)
        event_registry.require_known(self.settings, connection, self.types, end)
        epochs, files = self._read(connection, spark, begin, end)
        faults.reach("archive.files_written")
        self.guard.require_unchanged(end)  # after the records were read
        self._record(connection, ((f.topic, f.partition, f.start) for f in files))
        faults.reach("archive.before_commit")
        self._commit(begin, end, files, epochs)
        self.reached = epochs
        faults.reach("archive.after_commit")
        for file in files:
            end_archived(self.spans, file.topic, file.partition, file.sampled)
        ticks = [tick for file in files for tick in file.ticks]
        self.clock = max([*(tick.time for tick in ticks), *([self.clock] if self.clock else [])], default=None)
        self.pending_ticks.extend(ticks)
        self._start_quiet_days(connection, end)
        with connection.transaction():
            lease.record_batch(connection, self.holder)
            add_late_counts(connection, ((file.topic, file.late_records) for file in files))
        self.runs.go_on()
        self.patience.progressed()

    def _read(
        self, connection: Connection, spark: SparkSession, begin: Positions, end: Positions
    ) -> tuple[Epochs, list[ArchivedFile]]:
        """Write the batch's files while no leader changes, so that all records are from the same log as `begin`."""
        for _ in range(_READS):
            epochs = self.guard.take_epochs(end)
            require_uncut(self.settings, begin, self.reached, epochs)
            files = self._write(self._days(connection), spark, begin, end)
            try:
                self.guard.require_same_leaders(epochs, end)
            except LeaderChanged as changed:
                log.warning("%s", changed)
                continue
            return epochs, files
        raise LeaderChanged(f"leaders changed in each of {_READS} attempts to read one batch")

    def _write(self, days: LogDays, spark: SparkSession, begin: Positions, end: Positions) -> list[ArchivedFile]:
        tails = {(t, p): days.tail(t, p, begin.at(t, p)) for t, p in days.by_partition}
        writer = FileWriter(WriterSettings.of(self.settings), self.types, self.tables, tails, self.clock)
        return write_ranges(spark, self.settings.kafka(KafkaUser.READER), begin.ranges_to(end), writer)

    def _commit(self, begin: Positions, end: Positions, files: list[ArchivedFile], epochs: Epochs) -> None:
        advanced = {r.topic for r in begin.ranges_to(end)}
        appends = [_append(self.types[topic], begin, end, files, epochs) for topic in advanced]
        with ThreadPoolExecutor(_TOPICS_AT_ONCE) as pool:
            list(pool.map(lambda append: commit(self.catalog, append), appends))

    def _start_quiet_days(self, connection: Connection, reached: Positions) -> None:
        passed = [t for t in self.pending_ticks if reached.covers(Positions.from_json(t.ends).only(reached.offsets))]
        self.pending_ticks = [tick for tick in self.pending_ticks if tick not in passed]
        if passed:
            day = log_day.day_of(max(t.time for t in passed), self.settings.log_day_seconds)
            self._start_quiet_day(connection, reached, day)
            if day > self.quiet_day:  # asks Kafka and the catalog
                self._start_day_of_gone(connection, day)

    def _start_day_of_gone(self, connection: Connection, day: int) -> None:
        """Start the day in the topics that Kafka no longer has, where their archive ends; on failure, try again."""
        try:
            gone = gone_topics(self.settings, self.types.keys() - self.tables.keys())
            ended = archived_positions(self.settings, gone)
        except (TopicRefused, ServiceDown) as error:
            log.warning("topics that are gone may keep their log days open: %s", error)
            return
        self._start_quiet_day(connection, ended, day)
        self.quiet_day = day

    def _start_quiet_day(self, connection: Connection, reached: Positions, day: int) -> None:
        new = log_day.load_days(connection, reached.ids).quiet(reached, day)
        starts = ((topic, partition, start) for (topic, partition), start in new.items())
        log_day.record_days(connection, self.holder, reached.ids, starts)

    def _days(self, connection: Connection) -> LogDays:
        return log_day.load_days(connection, self.begin.ids)

    def _record(self, connection: Connection, new: Iterable[tuple[str, int, log_day.Start]]) -> None:
        log_day.record_days(connection, self.holder, self.begin.ids, new)


def _append(
    event_type: EventType, begin: Positions, end: Positions, files: list[ArchivedFile], epochs: Epochs
) -> Append:
    """One topic's commit. Every file must be within the batch range; otherwise two batches would share records."""
    topic, records = event_type.name, Counter[int]()
    of_topic = [file for file in files if file.topic == topic]
    for file in of_topic:
        first, last = file.start.first_offset, file.last_offset
        if not begin.at(topic, file.partition) <= first <= last < end.at(topic, file.partition):
            raise RuntimeError(f"{topic} {file.partition}: [{first}, {last}] is outside the batch")
        records[file.partition] += file.data_file.record_count
    return Append(
        topic,
        end.ids[topic],
        begin=begin.offsets.get(topic, {}),
        end=end.offsets[topic],
        records=records,
        files=tuple(file.data_file for file in of_topic),
        reading=event_type.reading,
        epochs={p: epoch for (t, p), epoch in epochs.items() if t == topic},
    )


@dataclass(frozen=True)
class _Process:
    """What stays the same from the start of the application to its end. `library` is the digest of its own code."""

    settings: Settings
    spark: SparkSession
    library: str
    patience: Patience
    runs: ApplicationRuns
    stop: threading.Event


def run_archive(settings: Settings, stop: threading.Event) -> None:
    """Archive every declared topic that can be archived until `stop` is set or the query fails.

    After an outage, the application goes on from the archive's positions, under the lease taken again.
    """
    library = application.library_digest()  # now, because the files may change while it waits for its lease
    begin_spark = cache(partial(session, settings, f"truelog {ARCHIVE}"))
    archive_lease = outlast_outage(lambda: lease.take_lease(settings, ARCHIVE), stop, begin_spark)
    spark, runs = begin_spark(), ApplicationRuns(settings)
    process = _Process(settings, spark, library, Patience(archive_lease, stop), runs, stop)
    with runs.until_end():
        while not stop.is_set():
            try:
                _archive_as_declared(process)
            except OUTAGES as error:
                process.patience.wait(error)
        archive_lease.release()


def _archive_as_declared(process: _Process) -> None:
    """Archive the declared topics until `stop` is set or something has changed."""
    faults.reach("archive.planning")
    settings = process.settings
    digest = application.source_digest(settings, process.library)
    types = event_registry.confirmed_types(settings)
    with open_catalog(settings) as catalog, opened_spans(settings, ARCHIVE) as spans:
        topics = ArchiveTopics(settings, catalog, types)
        watch = ChangeWatch(settings, ARCHIVE, topics.changed)
        _record_code(settings, process.patience.lease.holder, archive_code(types), digest)
        app = replace(_archiver(process, catalog, types, topics.assess()), spans=spans)
        process.runs.follow(lambda: {topic: job.archiving(settings, types[topic]) for topic in app.tables})
        _archive_until_changed(process.spark, app, watch, process.stop)


def _archive_until_changed(spark: SparkSession, app: ArchiveApp, watch: ChangeWatch, stop: threading.Event) -> None:
    """Archive until `stop` is set, the query fails, or the topics or their declarations have changed."""
    if not app.tables:
        app.patience.progressed()
        watch.wait(stop)
        return
    log.info("archiving from %s", app.begin.as_json())
    query = (
        _log(spark, app.settings, app.begin)
        .writeStream.foreachBatch(app)
        .option("checkpointLocation", app.checkpoint.as_uri())
        .trigger(processingTime=f"{_POLL_SECONDS} seconds")
        .start()
    )
    watch.follow(query, app.gate, stop)


def _record_code(settings: Settings, holder: Holder, code: str, digest: str) -> None:
    with connect(settings) as connection:
        application.set_code(connection, ARCHIVE, code, digest)
        lease.record_code(connection, holder, code)


def _archiver(process: _Process, catalog: Catalog, types: EventTypes, assessed: Assessment) -> ArchiveApp:
    settings, patience = process.settings, process.patience
    plain = {name: blueprint(table.metadata) for name, table in assessed.tables.items()}
    clock = newest_tick(settings, types[TOPIC]) if TOPIC in assessed.begin.ids else None
    return ArchiveApp(
        settings,
        catalog,
        types,
        plain,
        assessed.begin,
        fresh_checkpoint(settings.home / "scratch" / ARCHIVE),
        patience.lease.holder,
        TopicGuard(settings),
        assessed.reached,
        patience,
        process.runs,
        clock,
    )


def _log(spark: SparkSession, settings: Settings, begin: Positions) -> DataFrame:
    """The log from `begin` on; a batch starts when it is large enough or the trigger interval has passed."""
    limits = {
        "minOffsetsPerTrigger": str(_MIN_BATCH),
        "maxTriggerDelay": f"{round(settings.archive_trigger_seconds * 1000)}ms",
        "maxOffsetsPerTrigger": str(_MAX_BATCH),
    }
    return read_stream(spark, settings, begin.offsets, begin, limits)
