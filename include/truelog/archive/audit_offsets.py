"""Reads the records of audited files in Arrow batches, so that the audit's memory does not grow with the archive.

The audit looks at one window of offsets at a time. A window needs one byte for each offset. A batch of records needs
`_BATCH_BYTES`, plus one compressed column of one row group. Compaction may leave a file's records out of order, so
a file is read once for each window that it overlaps.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import urlparse

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table import Table

from truelog.archive.audit import AuditedFile

WINDOW = 4_000_000  # offsets
_BATCH_BYTES = 16 * 2**20
_BATCH_RECORDS = 65_536

Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Window:
    """Which offsets from `start` on are in a file, and how many records repeat another record's offset."""

    start: int
    held: Bools
    repeated: int


@dataclass(frozen=True)
class AuditedRecords:
    """The records of one partition's files."""

    table: Table
    files: tuple[AuditedFile, ...]

    def windows(self, begin: int, end: int) -> Iterator[Window]:
        """The offsets in [begin, end), one window after another."""
        for start in range(begin, end, WINDOW):
            held, repeated = np.zeros(min(WINDOW, end - start), np.bool_), 0
            for batch in self.batches(start, start + len(held), ("offset",)):
                offsets = batch["offset"].to_numpy() - start
                unique = np.unique(offsets)
                repeated += len(offsets) - len(unique) + int(np.count_nonzero(held[unique]))
                held[unique] = True
            yield Window(start, held, repeated)

    def batches(self, begin: int, end: int, columns: Iterable[str]) -> Iterator[pa.RecordBatch]:
        """The records in [begin, end), a few at a time, in no particular order."""
        for file in self.files:
            if file.first < end and file.last >= begin:
                for batch in self._read(file, ["offset", *(c for c in columns if c != "offset")]):
                    offsets = batch["offset"].to_numpy()
                    yield batch.filter(pa.array((offsets >= begin) & (offsets < end)))

    def _read(self, file: AuditedFile, columns: list[str]) -> Iterator[pa.RecordBatch]:
        location = urlparse(file.path)
        store = cast(PyArrowFileIO, self.table.io).fs_by_scheme(location.scheme, location.netloc)
        with store.open_input_file(location.netloc + location.path) as opened:
            parquet = pq.ParquetFile(opened, buffer_size=2**20, pre_buffer=False)
            records = _records_at_once(parquet.metadata, set(columns))
            yield from parquet.iter_batches(records, columns=columns, use_threads=False)


def _records_at_once(metadata: Any, columns: set[str]) -> int:
    """The number of records whose columns fit into a batch, by their average size in this file."""
    groups = [metadata.row_group(n) for n in range(metadata.num_row_groups)]
    chunks = [group.column(n) for group in groups for n in range(group.num_columns)]
    size = sum(c.total_uncompressed_size for c in chunks if c.path_in_schema.split(".")[0] in columns)
    average = max(1, size // max(1, metadata.num_rows))
    return int(max(1, min(_BATCH_RECORDS, _BATCH_BYTES // average)))


def runs(missing: Bools, start: int) -> list[tuple[int, int]]:
    """The ranges [begin, end) of offsets where `missing` is true; its first element is the offset `start`."""
    edges = np.flatnonzero(np.diff(missing, prepend=False, append=False)) + start
    return [(int(a), int(b)) for a, b in edges.reshape(-1, 2)]
