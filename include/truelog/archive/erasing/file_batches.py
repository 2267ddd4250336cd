"""Reads one file of an archive table in Arrow batches, so that memory does not grow with the file.

A batch needs `_BATCH_BYTES`, plus one compressed column of one row group.
"""

from collections.abc import Iterator
from typing import Any, cast
from urllib.parse import urlparse

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import PyArrowFileIO

_BATCH_BYTES = 16 * 2**20
_BATCH_RECORDS = 65_536


def read_batches(io: FileIO, path: str, columns: list[str] | None = None) -> Iterator[pa.RecordBatch]:
    """The records of a file in their order; without `columns`, with all columns of the file."""
    location = urlparse(path)
    store = cast(PyArrowFileIO, io).fs_by_scheme(location.scheme, location.netloc)
    with store.open_input_file(location.netloc + location.path) as opened:
        parquet = pq.ParquetFile(opened, buffer_size=2**20, pre_buffer=False)
        records = _records_at_once(parquet.metadata, set(parquet.schema_arrow.names if columns is None else columns))
        yield from parquet.iter_batches(records, columns=columns, use_threads=False)


def _records_at_once(metadata: Any, columns: set[str]) -> int:
    """The number of records whose columns fit into a batch, by their average size in this file."""
    groups = [metadata.row_group(n) for n in range(metadata.num_row_groups)]
    chunks = [group.column(n) for group in groups for n in range(group.num_columns)]
    size = sum(c.total_uncompressed_size for c in chunks if c.path_in_schema.split(".")[0] in columns)
    average = max(1, size // max(1, metadata.num_rows))
    return int(max(1, min(_BATCH_RECORDS, _BATCH_BYTES // average)))
