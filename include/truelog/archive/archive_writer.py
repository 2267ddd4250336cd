"""What a Spark task of the archive does: Kafka records in, Iceberg data files in S3 out.

One task reads one range of one Kafka partition in offset order, decodes it and writes a file for each log day that
the range touches, so a file never mixes partitions or days. Only descriptions of the files go back to the driver,
which commits them; files of a task that was retried are described by nobody, and no table ever points at them.
"""

import pickle
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cache

import numpy as np
import pyarrow as pa
from pyiceberg.io import load_file_io
from pyiceberg.io.pyarrow import write_file
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionFieldValue, PartitionKey
from pyiceberg.table import WriteTask
from pyiceberg.table.metadata import TableMetadata

from truelog.archive import late_records
from truelog.archive.archive_table import LOG_DAY, TIME, arrow_schema
from truelog.archive.log_day import Start, as_datetime, assign_days, day_of, day_starts
from truelog.kernel.clock import TOPIC as TICKS
from truelog.schema.decode import decode
from truelog.schema.event import FUTURE_LIMIT, EventType, load_events
from truelog.support.settings import Settings

DESCRIPTION = "file binary"  # what a task returns, for Spark: one pickled ArchivedFile a row

_FILE_BYTES = 64 * 2**20  # of records in memory; compressed it is a fraction


@dataclass(frozen=True)
class Tick:
    """At `time` no record at or after `ends` had been appended; `ends` as JSON."""

    time: datetime
    ends: str


@dataclass(frozen=True)
class ArchivedFile:
    """A file in S3 and the records that it holds, all of one partition and one log day."""

    topic: str
    partition: int
    start: Start
    last_offset: int
    data_file: DataFile
    ticks: tuple[Tick, ...]  # of the topic of ticks: the first of each day
    stragglers: int  # of its records


@dataclass(frozen=True)
class FileWriter:
    """Given to `mapInArrow`; holds all that a task must know, since a task asks no database."""

    settings: Settings
    tables: Mapping[str, TableMetadata]
    days: Mapping[tuple[str, int], tuple[Start, ...]]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for file in self._files(batch for batch in batches if batch.num_rows):
            yield pa.RecordBatch.from_pydict({"file": [pickle.dumps(file)]})

    def _files(self, batches: Iterator[pa.RecordBatch]) -> Iterator[ArchivedFile]:
        partition: _Partition | None = None
        for records in _chunks(batches):
            if partition is None:
                topic, number = records["topic"][0].as_py(), records["partition"][0].as_py()
                known = self.days.get((topic, number), ())
                partition = _Partition(self.settings, event_types()[topic], self.tables[topic], number, [*known])
            yield from partition.write(records)


@dataclass(frozen=True)
class _Partition:
    """One Kafka partition on its way into files; `days` grows with the records."""

    settings: Settings
    event_type: EventType
    table: TableMetadata
    number: int
    days: list[Start]

    def write(self, records: pa.Table) -> Iterator[ArchivedFile]:
        """One file for each log day of these records."""
        offsets = records["offset"].to_numpy()
        if records["partition"].unique().to_pylist() != [self.number] or np.any(np.diff(offsets) <= 0):
            raise RuntimeError(f"a task read more of {self.event_type.name} than one partition in offset order")
        times = records["timestamp"].cast(TIME).cast(pa.int64()).to_numpy()
        found = day_starts(offsets, assign_days(self.days, offsets, times, self.settings.log_day_seconds))
        self.days.extend(found)
        ends = [*np.searchsorted(offsets, [start.first_offset for start in found[1:]]), len(offsets)]
        begin = 0
        for start, end in zip(found, ends, strict=True):
            yield self._file(start, records.slice(begin, end - begin))
            begin = end

    def _file(self, start: Start, records: pa.Table) -> ArchivedFile:
        rows = self._rows(start, records)
        name, last = self.event_type.name, rows["offset"][-1].as_py()
        ticks = _first_ticks(rows, self.settings.log_day_seconds) if name == TICKS else ()
        late = late_records.late_counts(rows, self.settings.straggler_seconds)
        return ArchivedFile(name, self.number, start, last, self._put(start, rows), ticks, late)

    def _rows(self, start: Start, records: pa.Table) -> pa.Table:
        """The archive's columns of these records."""
        times = records["timestamp"].cast(TIME).combine_chunks()
        decoded = decode(self.event_type, records["value"].combine_chunks(), times, FUTURE_LIMIT)
        columns = {name: records[name] for name in ("partition", "offset", "key", "headers", "value")}
        columns |= {name: decoded[name] for name in decoded.schema.names}
        columns["broker_time"] = times
        columns["erased"] = pa.repeat(pa.scalar(False), len(records))
        columns[LOG_DAY.name] = pa.repeat(pa.scalar(as_datetime(start.day), TIME), len(records))
        schema = arrow_schema(self.event_type)
        return pa.Table.from_arrays([columns[f.name].cast(f.type) for f in schema], schema=schema)

    def _put(self, start: Start, rows: pa.Table) -> DataFile:
        spec, schema = self.table.spec(), self.table.schema()
        values = {"log_day": as_datetime(start.day), "partition": self.number}
        fields = [PartitionFieldValue(field, values[field.name]) for field in spec.fields]
        key = PartitionKey(fields, spec, schema)
        task = WriteTask(uuid.uuid4(), 0, schema, rows.to_batches(), partition_key=key)
        io = load_file_io(self.settings.iceberg(), self.table.location)
        [data_file] = write_file(io, self.table, iter([task]))
        return data_file


@cache
def event_types() -> Mapping[str, EventType]:
    """Loaded once a process: a Python worker of Spark serves many tasks."""
    return load_events()


def blueprint(metadata: TableMetadata) -> TableMetadata:
    """A table's schema, spec and properties without its history, which grows and which no task needs."""
    history: dict[str, object] = {
        "snapshots": [],
        "snapshot_log": [],
        "metadata_log": [],
        "refs": {},
        "current_snapshot_id": None,
    }
    return metadata.model_copy(update=history)


def to_dataframe_rows(description: bytes, tables: Mapping[str, TableMetadata]) -> ArchivedFile:
    """A file as the driver hears of it."""
    file: ArchivedFile = pickle.loads(description)  # noqa: S301 — made above, by our own task
    file.data_file.spec_id = tables[file.topic].default_spec_id  # pyiceberg leaves it out of a pickle
    return file


def _chunks(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Batches gathered until they are worth a file."""
    pending: list[pa.RecordBatch] = []
    for batch in batches:
        pending.append(batch)
        if sum(each.nbytes for each in pending) >= _FILE_BYTES:
            yield pa.Table.from_batches(pending)
            pending = []
    if pending:
        yield pa.Table.from_batches(pending)


def _first_ticks(rows: pa.Table, length: int) -> tuple[Tick, ...]:
    """Of each day, by the ticks' own time, the first: it is the one that may start the day elsewhere."""
    first: dict[int, Tick] = {}
    for time, ends in zip(rows["occurred_at"].to_pylist(), rows["ends"].to_pylist(), strict=True):
        if time is not None:  # an invalid tick tells no time
            first.setdefault(day_of(time, length), Tick(time, ends))
    return tuple(first.values())
