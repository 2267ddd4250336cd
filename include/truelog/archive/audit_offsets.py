"""Reads the records of audited files in Arrow batches, so that the audit's memory does not grow with the archive.

The audit looks at one window of offsets at a time. A window needs one byte for each offset. Compaction may leave a
file's records out of order, so a file is read once for each window that it overlaps.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyiceberg.table import Table

from truelog.archive.audit import AuditedFile
from truelog.archive.erasing.file_batches import read_batches

WINDOW = 4_000_000  # offsets

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
                for batch in read_batches(self.table.io, file.path, ["offset", *(c for c in columns if c != "offset")]):
                    offsets = batch["offset"].to_numpy()
                    yield batch.filter(pa.array((offsets >= begin) & (offsets < end)))


def runs(missing: Bools, start: int) -> list[tuple[int, int]]:
    """The ranges [begin, end) of offsets where `missing` is true; its first element is the offset `start`."""
    edges = np.flatnonzero(np.diff(missing, prepend=False, append=False)) + start
    return [(int(a), int(b)) for a, b in edges.reshape(-1, 2)]
