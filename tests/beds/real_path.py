"""Both sides of law 1 on the path that production takes.

The stream: raw bytes → `records.decoded` → `BatchApplier.apply` → `merge.apply`, cut by cut.
The rebuild: raw bytes → `FileWriter` → an Iceberg table → typed columns → partials of closed log days, and the
remaining records → `Rebuilder`. A second rebuild decodes the archived raw bytes again.

All cases share one log. Each case has its own range of offsets in each cut. A record's offset therefore says which
cut and which case the record belongs to, and the case is an additional key column of an ordinary view. The offsets
between the ranges are holes, as transaction markers leave them.
"""

import pickle
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cached_property, reduce
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pyarrow as pa
from psycopg import sql
from pyiceberg.catalog import Catalog
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.beds.archived import drop_archive
from tests.beds.lab import Lab
from tests.builders.log import forget_exclusions, forget_ticks
from tests.laws.events import START, Record, rule_of_case
from tests.laws.with_case import with_case
from truelog.archive import log_day
from truelog.archive.commit import Append, commit
from truelog.archive.schema import TIME
from truelog.archive.table import ensure_table, identifier, open_catalog
from truelog.archive.writer import ArchivedFile, FileWriter, WriterSettings, blueprint, load_archived_file
from truelog.batch.batch_context import BatchContext
from truelog.batch.rebuild import Rebuilder
from truelog.batch.recompute import recompute
from truelog.batch.shared_events import SharedEvents, shared_events
from truelog.control import lease
from truelog.kernel import clock, merge
from truelog.kernel.apply_batch import BatchApplier, EventRange
from truelog.log import records
from truelog.log.positions import Positions
from truelog.log.range_reader import PLACE
from truelog.log.records import EventFrames
from truelog.reconcile import row_diff
from truelog.reconcile.row_diff import DiffCounts
from truelog.schema.event import EventType
from truelog.spark.session import small_session
from truelog.storage.database import Connection
from truelog.support.settings import Settings
from truelog.tables import deploy as table
from truelog.tables.compiled_view import CompiledView
from truelog.tables.staging import event_files
from truelog.tables.staging.event_files import EventFiles, FileFrames
from truelog.tables.staging.repeated_plans import RepeatedPlans
from truelog.views.patterns import Patterns
from truelog.views.view import View

CUTS = 4
PARTITIONS = 3
KEEP = "110 seconds"  # of every view that drops old rows, because all views share one clock
DEDUPE = "1 second"  # of every view that leaves out copies: some are in the cut after that of their event
_CUT, _CASE = 1_000_000, 1_000  # offsets
_COMMITS = ((0, 2), (2, 4))  # the cuts of each archive commit
_BATCHES = (("small", 1), ("large", 1), ("small", 2))  # each with its number of cuts
_PARTIAL_DAYS = (1,)  # the log days with a partial; the rebuild reads those around it from the archived records


def batches(name: str) -> list[tuple[str, int]]:
    """The batches of a view, in an order that its name decides. A late view applies two small ones at once."""
    return Random(name).sample(_BATCHES, len(_BATCHES))


@dataclass(frozen=True)
class Logged:
    """A record of the shared log."""

    topic: str
    partition: int
    offset: int
    value: bytes | None

    @property
    def cut(self) -> int:
        return self.offset // _CUT


@dataclass(frozen=True)
class SharedLog:
    """The records of all cases, and the positions at the end of each cut."""

    records: Sequence[Logged]
    ids: Mapping[str, str]

    def end(self, cut: int) -> Positions:
        """The positions at the end of a cut; the log begins at the end of cut -1."""
        offset = (cut + 1) * _CUT
        offsets = {t: dict.fromkeys(range(1 if t == clock.TOPIC else PARTITIONS), offset) for t in self.ids}
        return Positions(offsets, self.ids)

    def of(self, topic: str, partition: int, cuts: range) -> list[Logged]:
        """A partition's records in these cuts, in offset order."""
        found = [r for r in self.records if (r.topic, r.partition) == (topic, partition) and r.cut in cuts]
        return sorted(found, key=lambda r: r.offset)


def shared_log(drawn: Sequence[Sequence[Record]], topics: Sequence[str]) -> SharedLog:
    """Put the cases into one log. Each cut ends with a tick that expires some rows of a view with `keep`."""
    log = SharedLog([], {t: uuid.uuid4().hex for t in (*topics, clock.TOPIC)})
    logged: list[Logged] = []
    for number, case in enumerate(drawn):
        reached: Counter[tuple[str, int, int]] = Counter()
        for record in case:
            cut = min(record.cut, CUTS - 1)
            offset = cut * _CUT + number * _CASE + reached[record.topic, record.partition, cut]
            reached[record.topic, record.partition, cut] += 1
            logged.append(Logged(record.topic, record.partition, offset, _of_case(number, record.value)))
    for cut in range(CUTS):
        time = START + timedelta(seconds=20 * cut)
        ends = log.end(cut).only(topics).as_json().replace('"', '\\"')
        tick = f'{{"event_id": "t{cut}", "occurred_at": "{time:%Y-%m-%dT%H:%M:%S}Z", "ends": "{ends}"}}'
        logged.append(Logged(clock.TOPIC, 0, cut * _CUT, tick.encode()))
    return replace(log, records=logged)


def _of_case(number: int, value: bytes | None) -> bytes | None:
    """The record with ids that no other case has, because a partition has the records of all cases."""
    for name in (b"event_id", b"search_id"):
        value = value and value.replace(b'"%s": "' % name, b'"%s": "%d.' % (name, number))
    return rule_of_case(number, value)


@dataclass
class RealPath:
    """Streams views from a shared log and rebuilds them from an archive of the same log."""

    lab: Lab
    log: SharedLog
    settings: Settings
    folder: Path  # of the files of small batches
    compared: dict[str, tuple[DiffCounts, DiffCounts]] = field(default_factory=dict)
    views: dict[str, CompiledView] = field(default_factory=dict)  # the compared views
    shared: SharedEvents | None = None  # the events that were decoded from the archive's raw bytes already

    def compare(self, name: str, view: View) -> tuple[DiffCounts, DiffCounts]:
        """The differences between the streamed view and its rebuild, and its rebuild from raw bytes."""
        if name not in self.compared:
            self.compared[name] = self._compare(name, view)
        return self.compared[name]

    def _compare(self, name: str, view: View) -> tuple[DiffCounts, DiffCounts]:
        compiled = self.streamed(name, view)
        for number in _PARTIAL_DAYS:
            recompute(self._context, compiled, log_day.as_datetime(int(START.timestamp()) + number))
        return self.compare_again(name)

    def streamed(self, name: str, view: View) -> CompiledView:
        """Stream a view, and forget what the stream has stored about the log, so that rebuilds must find their own."""
        compiled = self.views[name] = self.deployed(name, view)
        self._stream(compiled, batches(name))
        self._copy_streamed(compiled)
        self._forget(compiled)
        return compiled

    def compare_again(self, name: str) -> tuple[DiffCounts, DiffCounts]:
        """Like `compare`, but with new rebuilds of a view that is streamed already."""
        compiled = self.views[name]
        typed = self._rebuilt(compiled, from_raw=False)
        return typed, self._rebuilt(compiled, from_raw=True)

    def rows(self, name: str, view: View) -> int:
        """The rows of the view, rebuilt from raw bytes. It is not streamed."""
        compiled = self.deployed(name, view)
        rebuilder = Rebuilder(self._context, self.connection, compiled, True, self.shared)
        rebuilder.rebuild(self.log.end(CUTS - 1).only(compiled.view.topics))
        query = sql.SQL("SELECT count(*) FROM {}").format(row_diff.rebuilt_table(compiled.own))
        [(rows,)] = self.connection.execute(query).fetchall()
        return int(str(rows))

    def deployed(self, name: str, view: View) -> CompiledView:
        """The view with the case as an additional key, under a name that no other test uses."""
        case = F.expr(f"CAST(offset % {_CUT} DIV {_CASE} AS INT)")

        plain = replace(with_case(view, case), present={}, columns={}, meanings={})
        if view.keep and not isinstance(view, Patterns):  # rules need more time
            plain = replace(plain, keep=KEEP)
        if view.dedupe:
            plain = replace(plain, dedupe=DEDUPE)
        compiled = self.lab.compiled(f"{name[:30]}_{uuid.uuid4().hex[:8]}", plain)
        table.deploy_table(self.connection, compiled)
        return compiled

    @property
    def connection(self) -> Connection:
        return self.lab.connection

    @property
    def _context(self) -> BatchContext:
        return BatchContext(self.lab.spark, self.settings, self.lab.types)

    @cached_property
    def _types(self) -> dict[str, EventType]:
        return {topic: self.lab.types[topic] for topic in self.log.ids}

    @cached_property
    def _decoded(self) -> list[EventFrames]:
        """The valid events of each cut, decoded once for all views, as an application decodes a batch."""
        return [records.events(self._decoded_cut(cut).persist(), self._types) for cut in range(CUTS)]

    @cached_property
    def _files(self) -> list[EventFiles]:
        """The valid events of each cut, as an application writes those of a small batch."""
        written = []
        for cut in range(CUTS):
            folder = self.folder / str(cut)
            folder.mkdir()
            topics = {r.topic for r in self.log.records if r.cut == cut}
            raw = [batch for topic in sorted(topics) for batch in self._raw(cut, topic).to_batches()]
            written.append(event_files.write(folder, raw, self._types, {}))
        return written

    @cached_property
    def _small_session(self) -> SparkSession:
        return small_session(self.lab.spark)

    def _decoded_cut(self, cut: int) -> DataFrame:
        return records.decoded(self.lab.spark.createDataFrame(self._raw(cut)), self._types)

    def _raw(self, cut: int, topic: str | None = None) -> pa.Table:
        """The raw records of a cut, of one topic or of all."""
        raw = [r for r in self.log.records if r.cut == cut and topic in (None, r.topic)]
        columns = {
            "topic": pa.array([r.topic for r in raw], pa.string()),
            "partition": pa.array([r.partition for r in raw], pa.int32()),
            "offset": pa.array([r.offset for r in raw], pa.int64()),
            "broker_time": pa.array([_broker_time(r) for r in raw], TIME),
            "value": pa.array([r.value for r in raw], pa.binary()),
        }
        return pa.table(columns)

    def _events(self, compiled: CompiledView, cut: int) -> EventFrames:
        """The valid events of a cut, with only the columns that the view needs."""
        events = self._decoded[cut]
        return {topic: _needed(events[topic], compiled.columns.get(topic)) for topic in compiled.view.topics}

    def _stream(self, compiled: CompiledView, sizes: Sequence[tuple[str, int]]) -> None:
        """Apply the cuts as batches of these sizes."""
        applier, at = BatchApplier(self.settings), self.log.end(-1).only(compiled.view.topics)
        folders = self.folder / "views" / compiled.own.name, self.folder / "disk" / compiled.own.name
        repeated = RepeatedPlans(self._small_session, self.settings, *folders)
        begin = 0
        for size, length in sizes:
            cuts = range(begin, begin + length)
            batch = self._small_batch(compiled, cuts) if size == "small" else self._large_batch(compiled, cuts)
            if compiled.view.reads_clock:
                for cut in cuts:
                    ticks = self._decoded[cut][clock.TOPIC]
                    clock.store_ticks(self.connection, self.log.ids[clock.TOPIC], ticks)
            at = applier.apply(self.connection, compiled, batch, at, repeated)
            begin = cuts.stop
        assert merge.positions(self.connection, compiled) == at

    def _large_batch(self, compiled: CompiledView, cuts: range) -> EventRange:
        """Some cuts, as Spark's tasks decode them."""
        frames = [self._events(compiled, cut) for cut in cuts]
        events = {topic: reduce(DataFrame.unionByName, (each[topic] for each in frames)) for topic in frames[0]}
        return EventRange(events, self.log.end(cuts.start - 1), self.log.end(cuts.stop - 1))

    def _small_batch(self, compiled: CompiledView, cuts: range) -> EventRange:
        """Some cuts as files. A late view copies those of several recent batches together."""
        files = self._files[cuts.start]
        if len(cuts) > 1:
            folder = self.folder / uuid.uuid4().hex
            folder.mkdir()
            files = event_files.join(folder, [self._files[cut] for cut in cuts], compiled.view.reads)
        frames = FileFrames(self._small_session, files.folder, files.schemas)
        return EventRange(frames, self.log.end(cuts.start - 1), self.log.end(cuts.stop - 1), files=files)

    def _copy_streamed(self, compiled: CompiledView) -> None:
        for each in compiled.tables:
            self.connection.execute(
                sql.SQL("CREATE TABLE {} AS TABLE {}").format(
                    row_diff.streamed_table(each), sql.Identifier("state", each.name)
                )
            )

    def _forget(self, compiled: CompiledView) -> None:
        """Delete the exclusions and ticks that the stream stored."""
        forget_exclusions(self.connection, compiled.name)
        forget_ticks(self.connection, self.log.ids[clock.TOPIC])

    def _rebuilt(self, compiled: CompiledView, *, from_raw: bool) -> DiffCounts:
        rebuilder = Rebuilder(self._context, self.connection, compiled, from_raw, self.shared)
        positions = merge.positions(self.connection, compiled)
        rebuilder.exclude_and_retry(
            positions,
            lambda: rebuilder.countable_events(Positions(), positions),
            lambda: rebuilder.rebuild(positions),
        )
        own, *sides = (row_diff.find_differences(self.connection, each) for each in compiled.tables)
        missing, extra, different = (
            sum(counts) for counts in zip(*((c.missing, c.extra, c.different) for c in (own, *sides)), strict=True)
        )
        return DiffCounts(own.rows, missing, extra, different)


def _needed(events: DataFrame, columns: frozenset[str] | None) -> DataFrame:
    if columns is None:
        return events
    return events.select(*(name for name in events.columns if name in columns or name in PLACE.names))


@contextmanager
def real_path(lab: Lab, drawn: Sequence[Sequence[Record]], topics: Sequence[str]) -> Iterator[RealPath]:
    """Archive the cases, instead of an earlier test's cases, and share their events in the block."""
    settings = lab.settings.model_copy(update={"log_day_seconds": 1})  # each cut is one log day
    with TemporaryDirectory() as folder, open_catalog(settings) as catalog:
        path = RealPath(lab, shared_log(drawn, topics), settings, Path(folder))
        _drop(catalog, path)
        _archive(catalog, path)
        with shared_events(lab.spark, settings, [path.log.end(CUTS - 1)]) as path.shared:
            yield path


def _drop(catalog: Catalog, path: RealPath) -> None:
    for topic in path.log.ids:
        drop_archive(catalog, topic)


def _archive(catalog: Catalog, path: RealPath) -> None:
    """Archive the log in commits of at most two cuts, and record the log days that the files begin."""
    log, holder = path.log, lease.take_lease(path.settings, "law 1")
    for topic, topic_id in log.ids.items():
        ensure_table(catalog, path.lab.types[topic], topic_id, log.end(-1).offsets[topic])
    for first, after in _COMMITS:
        begin, end = log.end(first - 1), log.end(after - 1)
        for topic in log.ids:
            files = [
                file for partition in end.offsets[topic] for file in _files(catalog, path, topic, partition, first)
            ]
            starts = [(topic, file.partition, file.start) for file in files]
            log_day.record_days(path.connection, holder.holder, log.ids, starts)
            counts = Counter(dict.fromkeys(end.offsets[topic], 0))
            for file in files:
                counts[file.partition] += file.data_file.record_count
            data = tuple(file.data_file for file in files)
            commit(catalog, Append(topic, log.ids[topic], begin.offsets[topic], end.offsets[topic], counts, data))
    holder.release()


def _files(catalog: Catalog, path: RealPath, topic: str, partition: int, first: int) -> list[ArchivedFile]:
    """The files that a task of the archive writes for one partition of one commit."""
    tables = {topic: blueprint(catalog.load_table(identifier(topic)).metadata)}
    days = log_day.load_days(path.connection, path.log.ids).tail(topic, partition, first * _CUT)
    raw = path.log.of(topic, partition, range(first, first + 2))
    batch = pa.RecordBatch.from_pydict(
        {
            "topic": [topic] * len(raw),
            "partition": pa.array([partition] * len(raw), pa.int32()),
            "offset": pa.array([r.offset for r in raw], pa.int64()),
            "broker_time": pa.array([_broker_time(r) for r in raw], TIME),
            "key": [b"k"] * len(raw),
            "value": pa.array([r.value for r in raw], pa.binary()),
            "headers": [[]] * len(raw),
        }
    )
    given = FileWriter(WriterSettings.of(path.settings), path.lab.types, tables, {(topic, partition): days})
    writer: FileWriter = pickle.loads(pickle.dumps(given))
    return [load_archived_file(each["file"][0].as_py(), tables) for each in writer(iter([batch]))]


def _broker_time(record: Logged) -> datetime:
    """A time in the second of the record's cut. It goes back and forth, as the clocks of brokers do."""
    return START + timedelta(seconds=record.cut, milliseconds=record.offset % _CUT * 379 % 1_000)
