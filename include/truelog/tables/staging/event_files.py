"""Event files: the valid events of a small batch, decoded once into one Arrow file for each topic.

A plan over such a file can be executed for every batch: its source reads whatever file is at the path at that moment.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from truelog.log.range_reader import PLACE
from truelog.log.records import Columns
from truelog.schema.event import EventType, EventTypes
from truelog.schema.event_version import judge

MOST_BYTES = 2**26  # of a batch: the files are in memory, and so are its records while they are decoded
READS = "reads "  # before the path, in the name of a function that reads a file: a local task reads the file itself


@dataclass(frozen=True)
class EventFiles:
    """The files of a batch, in a folder of their own. Each topic has a file, so a missing file is an error."""

    folder: Path
    schemas: Mapping[str, pa.Schema]  # of every topic that a view reads
    filled: frozenset[str]  # the topics with a valid event
    size: int = 0  # bytes

    def have_events(self, topics: Iterable[str]) -> bool:
        """Whether any of these topics has a valid event in the batch."""
        return not self.filled.isdisjoint(topics)


class TooLarge(Exception):
    """The events of a batch have more bytes than its files may have."""


def write(
    folder: Path, records: Iterable[pa.RecordBatch], types: EventTypes, needed: Columns, most_bytes: int = MOST_BYTES
) -> EventFiles:
    """Decode raw records, in batches of one topic each, and write their valid events to `folder`.

    Raises:
        TooLarge: the events have more bytes than `most_bytes`. Nothing was written.
    """
    schemas = {name: columns(each, needed) for name, each in types.items()}
    found: dict[str, list[pa.RecordBatch]] = {}
    size = 0
    for raw in records:
        topic = raw.column("topic")[0].as_py()
        events = _valid(raw, types[topic], schemas[topic])
        size += events.nbytes
        if size > most_bytes:
            raise TooLarge
        if events.num_rows:
            found.setdefault(topic, []).append(events)
    return save(folder, schemas, found)


def join(folder: Path, parts: Sequence[EventFiles], topics: Iterable[str]) -> EventFiles:
    """Copy the events of successive batches in these topics to `folder`, as if they had been one batch.

    The batches have the same schemas.
    """
    schemas = {topic: parts[0].schemas[topic] for topic in topics}
    filled = {topic: [each for each in parts if topic in each.filled] for topic in schemas}
    # As few Arrow batches as possible, because each of them costs time in Spark.
    found = {topic: read(topic, each).combine_chunks().to_batches() for topic, each in filled.items() if each}
    return save(folder, schemas, found)


def save(folder: Path, schemas: Mapping[str, pa.Schema], found: Mapping[str, Sequence[pa.RecordBatch]]) -> EventFiles:
    """Write a file for each topic, also for one without events."""
    for topic, schema in schemas.items():
        with pa.OSFile(str(_file(folder, topic)), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
            for batch in found.get(topic, ()):
                writer.write_batch(batch)
    size = sum(batch.nbytes for batches in found.values() for batch in batches)
    return EventFiles(folder, schemas, frozenset(found), size)


def read(topic: str, parts: Iterable[EventFiles]) -> pa.Table:
    """The events of some batches in one topic."""
    tables: list[pa.Table] = []
    for each in parts:
        with pa.memory_map(str(_file(each.folder, topic))) as opened:
            tables.append(pa.ipc.open_file(opened).read_all())
    return pa.concat_tables(tables)


def columns(event_type: EventType, needed: Columns) -> pa.Schema:
    """The columns of an event type's file: the coordinates, and the fields that are needed."""
    names = needed.get(event_type.name)
    return pa.schema([*PLACE, *(each for each in event_type.arrow_schema if names is None or each.name in names)])


class FileFrames(Mapping[str, DataFrame]):
    """A frame of the events in each topic's file. A frame is made when it is asked for, because that calls the JVM.

    Each frame has one partition, so to group it needs no shuffle.
    """

    def __init__(self, spark: SparkSession, folder: Path, schemas: Mapping[str, pa.Schema]) -> None:
        self.spark, self.folder, self.schemas = spark, folder, schemas
        self._made: dict[str, DataFrame] = {}

    def __getitem__(self, topic: str) -> DataFrame:
        if topic not in self._made:
            self._made[topic] = frame(self.spark, _file(self.folder, topic), self.schemas[topic])
        return self._made[topic]

    def __iter__(self) -> Iterator[str]:
        return iter(self.schemas)

    def __len__(self) -> int:
        return len(self.schemas)


def frame(spark: SparkSession, file: Path, schema: pa.Schema) -> DataFrame:
    """The rows that an Arrow file has at the time of each execution, in one partition."""
    return spark.range(0, 1, 1, 1).mapInArrow(_reader(file, schema), from_arrow_schema(schema))


def _reader(file: Path, schema: pa.Schema):  # type: ignore[no-untyped-def]
    """The function that runs in the executors' Python: a file's batches out, whatever comes in."""
    path = str(file)

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            pass
        with pa.memory_map(path) as opened:
            for batch in pa.ipc.open_file(opened).read_all().to_batches():
                yield batch.cast(schema)

    read.__name__ = f"{READS}{path}"
    return read


def _file(folder: Path, topic: str) -> Path:
    return folder / f"{topic}.arrow"


def _valid(raw: pa.RecordBatch, event_type: EventType, schema: pa.Schema) -> pa.RecordBatch:
    """The valid events among raw records of one topic."""
    events = judge(event_type, raw, schema.names[len(PLACE) :])
    columns = [raw.column(name) for name in PLACE.names]
    columns += [events.column(name) for name in schema.names[len(PLACE) :]]
    arrays = [column.cast(each.type) for column, each in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema).filter(pc.is_null(events.column("invalid")))
