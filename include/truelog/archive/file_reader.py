"""The work of one Spark task of `reader.read_without_catalog`: reads records from planned files.

Unlike the archive's other readers, a task does not import the catalog's libraries.
"""

import pickle
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyiceberg.expressions.parser import parse
from pyiceberg.io import load_file_io
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.table import FileScanTask
from pyiceberg.table.metadata import TableMetadata

from truelog.archive.schema import TIME

_COLUMNS = ("partition", "offset", "broker_time", "value")


@dataclass(frozen=True)
class FileReader:
    """The function for `mapInArrow`: reads the files of the `task` column and returns their raw records."""

    topic: str
    where: str
    metadata: TableMetadata
    store: Mapping[str, str]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        io = load_file_io(dict(self.store), self.metadata.location)
        scan = ArrowScan(self.metadata, io, self.metadata.schema().select(*_COLUMNS), parse(self.where))
        for packed in (each for batch in batches for each in batch.column("task").to_pylist()):
            yield from map(self._as_logged, scan.to_record_batches([_unpack(packed)]))

    def _as_logged(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        columns = {
            "topic": pa.repeat(pa.scalar(self.topic), rows.num_rows),
            "partition": rows["partition"].cast(pa.int32()),
            "offset": rows["offset"].cast(pa.int64()),
            "broker_time": rows["broker_time"].cast(TIME),
            "value": rows["value"].cast(pa.binary()),
        }
        return pa.RecordBatch.from_pydict(columns)


def pack(task: FileScanTask) -> bytes:
    """A planned file as a value of the `task` column."""
    return pickle.dumps((task, task.file.spec_id))  # pyiceberg does not pickle this field


def _unpack(packed: bytes) -> FileScanTask:
    task, spec_id = pickle.loads(packed)  # noqa: S301 — pickled by this application's driver
    task.file.spec_id = spec_id
    found: FileScanTask = task
    return found
