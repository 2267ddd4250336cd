"""The work of one Spark task of the archive: reads Kafka records and writes Iceberg data files to S3.

A task reads one range of one Kafka partition in offset order, decodes the records, and writes separate files for each
log day, so a file never mixes partitions or days. The task returns descriptions of its files, and the driver commits
the files. A failed attempt returns no descriptions, so no table ever refers to its files.
"""

import pickle
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io import FileIO, load_file_io
from pyiceberg.io.pyarrow import write_file
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionFieldValue, PartitionKey
from pyiceberg.table import WriteTask
from pyiceberg.table.metadata import TableMetadata

from truelog.archive.log_day import Start, as_datetime, assign_days, day_of, day_starts, held_times
from truelog.archive.schema import LOG_DAY, TIME, arrow_schema, column_of
from truelog.log import range_reader
from truelog.log.positions import Range
from truelog.log.valid_tick import tick_ends
from truelog.relay.sampled_records import SampledRecord, sampled_records
from truelog.schema.event import EventType, EventTypes
from truelog.schema.event_version import judge
from truelog.schema.names import TICKS
from truelog.storage.database import Connection
from truelog.support.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_DESCRIPTION = "file binary"  # the schema of a task's result: one pickled ArchivedFile per row

_FILE_BYTES = 64 * 2**20  # size of the records in memory; the compressed file is much smaller


@dataclass(frozen=True)
class ArchivedTick:
    """At `time`, no record at or after `ends` had been appended; `ends` is the JSON of a valid tick."""

    time: datetime
    ends: str


@dataclass(frozen=True)
class ArchivedFile:
    """A file in S3 with records of one partition and one log day."""

    topic: str
    partition: int
    start: Start
    last_offset: int
    data_file: DataFile
    ticks: tuple[ArchivedTick, ...]  # the first tick of each day; only in files of the `ticks` topic
    late_records: int
    sampled: tuple[SampledRecord, ...] = ()


@dataclass(frozen=True)
class WriterSettings:
    """The settings that a task needs. Spark ships them to its executors, so they contain no other secret."""

    store: Mapping[str, str]
    log_day_seconds: int
    straggler_seconds: float
    spans: bool = False  # whether there is a receiver of spans

    @staticmethod
    def of(settings: Settings) -> "WriterSettings":
        seconds, spans = (settings.log_day_seconds, settings.straggler_seconds), bool(settings.spans_endpoint)
        return WriterSettings(settings.object_store(), *seconds, spans)


@dataclass(frozen=True)
class FileWriter:
    """The function for `mapInArrow`, with everything that a task needs, because tasks do not query the database."""

    settings: WriterSettings
    types: EventTypes
    tables: Mapping[str, TableMetadata]
    days: Mapping[tuple[str, int], tuple[Start, ...]]
    clock: datetime | None = None  # the newest tick's time before the batch; None if there is no tick

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for file in self._files(batch for batch in batches if batch.num_rows):
            yield pa.RecordBatch.from_pydict({"file": [pickle.dumps(file)]})

    def _files(self, batches: Iterator[pa.RecordBatch]) -> Iterator[ArchivedFile]:
        partition: _Partition | None = None
        for records in chunks(batches):
            if partition is None:
                topic, number = records["topic"][0].as_py(), records["partition"][0].as_py()
                known = self.days.get((topic, number), ())
                partition = _Partition(
                    self.settings, self.types[topic], self.tables[topic], number, [*known], self.clock
                )
            yield from partition.write(records)


@dataclass(frozen=True)
class _Partition:
    """Writes one Kafka partition to files; the log days that the records begin are added to `days`."""

    settings: WriterSettings
    event_type: EventType
    table: TableMetadata
    number: int
    days: list[Start]
    clock: datetime | None

    def write(self, records: pa.Table) -> Iterator[ArchivedFile]:
        """Write one file for each log day of these records."""
        offsets = records["offset"].to_numpy()
        if records["partition"].unique().to_pylist() != [self.number] or np.any(np.diff(offsets) <= 0):
            raise RuntimeError(f"a task must read one partition of {self.event_type.name} in offset order, but did not")
        times = held_times(records["broker_time"].cast(TIME).cast(pa.int64()).to_numpy(), self.clock)
        starts = day_starts(offsets, assign_days(self.days, offsets, times, self.settings.log_day_seconds))
        self.days.extend(starts)
        ends = [*np.searchsorted(offsets, [start.first_offset for start in starts[1:]]), len(offsets)]
        begin = 0
        for start, end in zip(starts, ends, strict=True):
            yield self._file(start, records.slice(begin, end - begin))
            begin = end

    def _file(self, start: Start, records: pa.Table) -> ArchivedFile:
        rows = self._rows(start, records)
        name, last = self.event_type.name, rows["offset"][-1].as_py()
        ticks = _first_ticks(rows, self.settings.log_day_seconds) if name == TICKS else ()
        late = count_late(rows, self.settings.straggler_seconds)
        io = load_file_io(dict(self.settings.store), self.table.location)
        data_file = write_rows(io, self.table, as_datetime(start.day), self.number, rows)
        sampled = sampled_records(records) if self.settings.spans else ()
        return ArchivedFile(name, self.number, start, last, data_file, ticks, late, sampled)

    def _rows(self, start: Start, records: pa.Table) -> pa.Table:
        """The records with the archive's columns."""
        times = records["broker_time"].cast(TIME).combine_chunks()
        judged = {name: records[name].combine_chunks() for name in ("partition", "offset", "value")}
        decoded = judge(self.event_type, pa.record_batch(judged | {"broker_time": times}))
        columns = {name: records[name] for name in ("partition", "offset", "key", "headers", "value")}
        columns["invalid"] = decoded["invalid"]
        columns |= {column_of(name): decoded[name] for name in decoded.schema.names if name != "invalid"}
        columns["broker_time"] = times
        columns["erased"] = pa.repeat(pa.scalar(False), len(records))
        columns[LOG_DAY.name] = pa.repeat(pa.scalar(as_datetime(start.day), TIME), len(records))
        schema = arrow_schema(self.event_type)
        return pa.Table.from_arrays([columns[f.name].cast(f.type) for f in schema], schema=schema)


def write_rows(io: FileIO, table: TableMetadata, log_day: datetime, partition: int, rows: pa.Table) -> DataFile:
    """Write rows of one log day and partition into a file, which the table does not have yet."""
    spec, schema = table.spec(), table.schema()
    values = {LOG_DAY.name: log_day, "partition": partition}
    key = PartitionKey([PartitionFieldValue(each, values[each.name]) for each in spec.fields], spec, schema)
    task = WriteTask(uuid.uuid4(), 0, schema, rows.to_batches(), partition_key=key)
    [data_file] = write_file(io, table, iter([task]))
    return data_file


def write_ranges(
    spark: "SparkSession", client: Mapping[str, Any], ranges: Sequence[Range], writer: FileWriter
) -> list[ArchivedFile]:
    """Read ranges of the log, one in each task, and write their records to files, which no table has yet."""

    def write(numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in numbers:
            for each in number["id"].to_pylist():
                yield from writer(range_reader.read(client, [ranges[each]], range_reader.WHOLE))

    described = spark.range(0, len(ranges), 1, max(1, len(ranges))).mapInArrow(write, _DESCRIPTION)
    return [load_archived_file(bytes(row.file), writer.tables) for row in described.collect()]


def blueprint(metadata: TableMetadata) -> TableMetadata:
    """A table's metadata without the history, which keeps growing and is not needed by tasks."""
    history: dict[str, object] = {
        "snapshots": [],
        "snapshot_log": [],
        "metadata_log": [],
        "refs": {},
        "current_snapshot_id": None,
    }
    return metadata.model_copy(update=history)


def load_archived_file(description: bytes, tables: Mapping[str, TableMetadata]) -> ArchivedFile:
    """The file that a task described."""
    file: ArchivedFile = pickle.loads(description)  # noqa: S301 — pickled by this application's task
    file.data_file.spec_id = tables[file.topic].default_spec_id  # pyiceberg does not pickle this field
    return file


def count_late(rows: pa.Table, seconds: float) -> int:
    """The number of archive rows that came more than `seconds` after their event; invalid records do not count.

    Late records ("stragglers") reach the log long after the event, such as those from a phone that was offline for a
    day. Views count a late record like any other event, because a record has both times. The archive, which reads every
    topic, counts late records separately.
    """
    delays = pc.subtract(rows["broker_time"], rows["event_time"])
    late: int | None = pc.sum(pc.greater(delays, pa.scalar(timedelta(seconds=seconds)))).as_py()
    return late or 0


def add_late_counts(connection: Connection, committed: Iterable[tuple[str, int]]) -> None:
    """Add each file's late records to its topic's count. If the archive dies first, a batch stays uncounted."""
    counts: Counter[str] = Counter()
    for topic, records in committed:
        counts[topic] += records
    with connection.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO truelog.straggler AS s (topic, records) VALUES (%s, %s) "
            "ON CONFLICT (topic) DO UPDATE SET records = s.records + excluded.records",
            list(counts.items()),
        )


def chunks(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """The batches, collected into tables of about `_FILE_BYTES`."""
    pending: list[pa.RecordBatch] = []
    for batch in batches:
        pending.append(batch)
        if sum(each.nbytes for each in pending) >= _FILE_BYTES:
            yield pa.Table.from_batches(pending)
            pending = []
    if pending:
        yield pa.Table.from_batches(pending)


def _first_ticks(rows: pa.Table, length: int) -> tuple[ArchivedTick, ...]:
    """The first tick of each day by the ticks' own times; this tick starts the day in partitions without records."""
    first: dict[int, ArchivedTick] = {}
    columns = (rows["occurred_at"].cast(pa.int64()), rows["broker_time"].cast(pa.int64()), rows["ends"])
    for time, broker_time, text in zip(*(column.to_pylist() for column in columns), strict=True):
        ends = None if time is None else tick_ends(time, broker_time, text)  # an invalid record has no time
        if ends is not None:
            at = as_datetime(time // 1_000_000)
            first.setdefault(day_of(at, length), ArchivedTick(at, ends.as_json()))
    return tuple(first.values())
