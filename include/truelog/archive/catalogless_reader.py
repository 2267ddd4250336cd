"""Reads the archive without its catalog, from the bucket alone, for processes that cannot access the database.

After each commit, the archive writes the location of the table's newest metadata to the bucket
(`archive.archive_commit`). With this metadata, pyiceberg finds the files that contain the wanted records, and Spark
tasks read the files without the Spark Iceberg catalog.
"""

import pickle
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce

import pyarrow as pa
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.expressions.parser import parse
from pyiceberg.io import load_file_io
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.table import FileScanTask, StaticTable, Table
from pyiceberg.table.metadata import TableMetadata
from pyspark.sql import DataFrame, SparkSession

from truelog.archive.archive_reader import Wanted, require_archived
from truelog.archive.archive_table import NAMESPACE, TIME, identifier, require_same_topic
from truelog.archive.archive_writer import blueprint
from truelog.archive.catalog_pointer import read_pointer
from truelog.log.positions import Range
from truelog.log.records import decoded
from truelog.schema.event import EventTypes
from truelog.support.errors import ArchiveBehind
from truelog.support.settings import Settings

_RAW = "topic string, partition int, offset bigint, broker_time timestamp, value binary"
_COLUMNS = ("partition", "offset", "broker_time", "value")


def read_records(spark: SparkSession, settings: Settings, types: EventTypes, wanted: Wanted) -> DataFrame:
    """The wanted records of these types, decoded again from raw bytes, like `archive_reader.records` with `from_raw`.

    Raises:
        ArchiveBehind: some of these records are not archived yet.
        TopicRecreated: the archive contains another topic with this name.
    """
    return decoded(reduce(DataFrame.union, (_raw(spark, settings, name, wanted) for name in types)), types)


def _raw(spark: SparkSession, settings: Settings, topic: str, wanted: Wanted) -> DataFrame:
    ranges = [each for each in wanted.ranges if each.topic == topic]
    if not ranges:
        return spark.createDataFrame([], _RAW)
    table = _open(settings, topic)
    require_same_topic(table, wanted.ids[topic])
    require_archived(table, topic, ranges)
    where = f"erased = false AND ({' OR '.join(map(_is_in, ranges))})"
    if wanted.since is not None:
        where += f" AND broker_time > '{wanted.since.isoformat()}'"
    planned = [(pickle.dumps((task, task.file.spec_id)),) for task in table.scan(where).plan_files()]
    files = spark.createDataFrame(planned, "task binary")
    reader = _Reader(topic, where, blueprint(table.metadata), settings.object_store())
    return files.mapInArrow(reader, _RAW)


def _open(settings: Settings, topic: str) -> Table:
    """Open the table that the pointer in the bucket refers to, read-only."""
    stored = read_pointer(settings.object_store(), settings.s3_bucket, identifier(topic))
    if stored is None:
        raise ArchiveBehind(f"no record of {topic} is archived yet. Is the archive application running?")
    found = StaticTable.from_metadata(stored.location, settings.object_store())
    return Table((NAMESPACE, topic), found.metadata, stored.location, found.io, NoopCatalog(NAMESPACE))


def _is_in(wanted: Range) -> str:
    return f"(partition = {wanted.partition} AND offset >= {wanted.start} AND offset < {wanted.end})"


@dataclass(frozen=True)
class _Reader:
    """The function for `mapInArrow`: reads planned files and returns their raw records."""

    topic: str
    where: str
    metadata: TableMetadata
    store: Mapping[str, str]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        io = load_file_io(dict(self.store), self.metadata.location)
        scan = ArrowScan(self.metadata, io, self.metadata.schema().select(*_COLUMNS), parse(self.where))
        for planned in (each for batch in batches for each in batch.column("task").to_pylist()):
            yield from map(self._as_logged, scan.to_record_batches([_task(planned)]))

    def _as_logged(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        columns = {
            "topic": pa.repeat(pa.scalar(self.topic), rows.num_rows),
            "partition": rows["partition"].cast(pa.int32()),
            "offset": rows["offset"].cast(pa.int64()),
            "broker_time": rows["broker_time"].cast(TIME),
            "value": rows["value"].cast(pa.binary()),
        }
        return pa.RecordBatch.from_pydict(columns)


def _task(planned: bytes) -> FileScanTask:
    task, spec_id = pickle.loads(planned)  # noqa: S301 — pickled by this application's driver
    task.file.spec_id = spec_id  # pyiceberg does not pickle this field
    found: FileScanTask = task
    return found
