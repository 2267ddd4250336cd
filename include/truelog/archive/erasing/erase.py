"""Erases the covered records of one topic from its archive table.

An erased record keeps its coordinates, its broker time and its log day. All else becomes NULL
(pyiceberg writes an empty list of headers instead), and `erased` becomes true.

1. Find the covered records of each live file by their raw bytes.
2. Write a copy of each file with covered records, in which they are erased.
3. Replace these files by the copies in one commit, which requires that they are live. If a compaction or an append
   came first, plan again: files that are still live need no second copy. Appends wait for this plan and its commit, or
   else a busy archive would come first again and again.
4. Delete the objects that only earlier snapshots have, and then these snapshots. In this order, because nothing else
   knows the objects.

The positions and the number of records do not change, so the archive application goes on, and the audit finds every
record. Each step may be repeated: after step 3, no live file has a covered record.
"""

import json
import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError, ValidationException
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from truelog.archive.catalog_pointer import advance_pointer, load_newest, turn
from truelog.archive.erasing.file_batches import read_batches
from truelog.archive.log_day import as_datetime
from truelog.archive.schema import LOG_DAY, PLACE
from truelog.archive.table import ERASED, Progress, erased_counts, ever_live, identifier
from truelog.archive.writer import chunks, write_rows
from truelog.erasure.erasure import Erasures
from truelog.erasure.ledger import CoveredDay
from truelog.schema.event import EventType
from truelog.storage import bucket
from truelog.support import faults
from truelog.support.errors import ServiceDown

_KEPT = frozenset({*PLACE.names, LOG_DAY.name, "erased"})
_ATTEMPTS = 20
_FILES_AT_ONCE = 4  # are read, while each waits for the object store

Offsets = NDArray[np.int64]

log = logging.getLogger("truelog.archive")


@dataclass(frozen=True)
class _Copy:
    """The files that replace a file, and how many records were erased in them."""

    files: tuple[DataFile, ...]
    erased: int


@dataclass
class ArchiveEraser:
    """Erases what these erasures cover from the archive of one event type."""

    catalog: Catalog
    event_type: EventType
    erasures: Erasures
    covered: dict[str, Offsets] = field(default_factory=dict)  # in each file that was examined, by its path
    table: str = ""  # its name, which is that of the topic unless an operator has renamed it
    _copies: dict[str, _Copy] = field(default_factory=dict)

    def count(self, *, with_erased: bool = False) -> list[CoveredDay]:
        """The covered records that are not erased yet, by partition and log day.

        If `with_erased`, also all erased records below the ends: nothing shows which erasure has covered them.
        """
        found: Counter[tuple[int, datetime]] = Counter()
        if (table := self._table()) is not None:
            for file, covered in self._examine(table):
                day, partition = _partition_of(file)
                found[partition, day] += len(covered)
                if with_erased:
                    found[partition, day] += self._erased_below_end(table, file)
        return [CoveredDay(self.event_type.name, p, day, n) for (p, day), n in sorted(found.items()) if n]

    def rewrite(self) -> int:
        """Replace the files with covered records, and return how many records were erased.

        Raises:
            CatalogBehind: the bucket has a newer version of the table than the catalog.
            ServiceDown: other commits replaced the same files again and again.
        """
        for attempt in range(_ATTEMPTS):
            if attempt and (table := self._table()) is not None:
                self._replacements(table)  # so that appends wait only for the copies of the newest files
            with turn(self.catalog, self._name, alone=True) if attempt else nullcontext():
                erased = self._attempt()
            if erased is not None:
                if (table := self._table()) is not None:
                    advance_pointer(table)  # also if nothing was replaced: a crash may have left it behind
                return erased
        raise ServiceDown(
            f"archive of {self._name}: other commits came before the erasure {_ATTEMPTS} times. Nothing was "
            "changed. Repeat the erasure while no upkeep runs."
        )

    def _attempt(self) -> int | None:
        """Replace the files, and return how many records were erased; None if another commit came first."""
        table = self._table()
        if table is None:
            return 0
        replacements = self._replacements(table)
        if replacements:
            faults.reach("erase.written")
            try:
                _replace(table, replacements)
            except (CommitFailedException, ValidationException) as conflict:
                log.info("archive of %s: its erasure is planned again: %s", self._name, conflict)
                return None
            faults.reach("erase.committed")
        return sum(copy.erased for _, copy in replacements)

    def expire(self) -> int:
        """Delete the objects that only earlier snapshots have, and these snapshots. Returns the number of objects."""
        table = self._table()
        if table is None or table.current_snapshot() is None:
            return 0
        forgotten = forget_earlier(table)
        advance_pointer(table)
        return forgotten

    @property
    def _name(self) -> str:
        return self.table or identifier(self.event_type.name)

    def _table(self) -> Table | None:
        try:
            return load_newest(self.catalog, self._name, self.event_type.topic_id)
        except NoSuchTableError:
            return None

    def _replacements(self, table: Table) -> list[tuple[DataFile, _Copy]]:
        """The live files with covered records, and their copies."""
        return [(file, self._copy_of(table, file, found)) for file, found in self._examine(table) if len(found)]

    def _copy_of(self, table: Table, file: DataFile, covered: Offsets) -> _Copy:
        if file.file_path not in self._copies:
            self._copies[file.file_path] = _Copy(tuple(_copied(table, file, covered)), len(covered))
        return self._copies[file.file_path]

    def _examine(self, table: Table) -> list[tuple[DataFile, Offsets]]:
        """Each live file, and the offsets of its covered records."""
        files = [*_live(table)]
        new = [each for each in files if each.file_path not in self.covered]
        with ThreadPoolExecutor(_FILES_AT_ONCE) as pool:
            found = pool.map(partial(self._covered, table), new)
            self.covered.update(zip((each.file_path for each in new), found, strict=True))
        return [(each, self.covered[each.file_path]) for each in files]

    def _covered(self, table: Table, file: DataFile) -> Offsets:
        """The offsets of a file's covered records that are not erased yet, by their raw bytes."""
        topic_id = Progress.of(table.metadata).topic_id
        if _first_offset(table, file) >= self._end(table, file):
            return np.array([], np.int64)
        found = []
        for batch in read_batches(table.io, file.file_path, ["partition", "offset", "key", "value", "erased"]):
            records = batch.filter(pc.invert(batch["erased"]))
            found.append(records["offset"].to_numpy()[self.erasures.covered(self.event_type, topic_id, records)])
        return np.concatenate(found) if found else np.array([], np.int64)

    def _erased_below_end(self, table: Table, file: DataFile) -> int:
        """The number of a file's erased records below the end."""
        end = self._end(table, file)
        if _first_offset(table, file) >= end:
            return 0
        batches = read_batches(table.io, file.file_path, ["offset", "erased"])
        return sum(int(np.sum(batch.filter(batch["erased"])["offset"].to_numpy() < end)) for batch in batches)

    def _end(self, table: Table, file: DataFile) -> int:
        """The first offset of the file's partition that is not covered."""
        topic_id = Progress.of(table.metadata).topic_id
        return self.erasures.end(self.event_type.name, topic_id, _partition_of(file)[1])


def _replace(table: Table, replaced: Sequence[tuple[DataFile, _Copy]]) -> None:
    """Commit the copies of these files, with the number of erased records by partition as a property."""
    counts = Counter(erased_counts(table))
    for file, copy in replaced:
        counts[_partition_of(file)[1]] += copy.erased
    with table.transaction() as transaction:
        transaction.set_properties({ERASED: json.dumps({str(p): n for p, n in sorted(counts.items())})})
        with transaction.update_snapshot().overwrite() as snapshot:
            for file, copy in replaced:
                snapshot.delete_data_file(file)
                for each in copy.files:
                    snapshot.append_data_file(each)


def forget_earlier(table: Table) -> int:
    """Delete the objects that only a table's earlier snapshots have, and these snapshots; return how many objects.

    A reader that has planned on an earlier snapshot fails, and must begin again.
    """
    live = {each.file_path for each in _live(table)}
    dead = sorted(ever_live(table) - live)
    bucket.delete_objects(bucket.client_of(table.io.properties), table.location().split("/")[2], dead)
    faults.reach("erase.deleted")
    for _ in range(_ATTEMPTS):
        table.refresh()
        current = table.current_snapshot()
        old = [each.snapshot_id for each in table.snapshots() if current and each != current]
        if not old:
            break
        try:
            table.maintenance.expire_snapshots().by_ids(old).commit()
        except (CommitFailedException, ValueError) as changed:  # another process was faster
            log.info("%s: snapshots are expired again: %s", ".".join(table.name()), changed)
    return len(dead)


def _live(table: Table) -> Iterator[DataFile]:
    return (task.file for task in table.scan().plan_files())


def _partition_of(file: DataFile) -> tuple[datetime, int]:
    """A file's log day and Kafka partition."""
    return as_datetime(int(file.partition[0]) // 1_000_000), int(file.partition[1])


def _first_offset(table: Table, file: DataFile) -> int:
    return int.from_bytes(file.lower_bounds[table.schema().find_field("offset").field_id], "little", signed=True)


def _copied(table: Table, file: DataFile, covered: Offsets) -> Iterator[DataFile]:
    """New files with the file's records, in which the covered records are erased."""
    day, partition = _partition_of(file)
    schema = pa.schema([each.remove_metadata() for each in table.schema().as_arrow()])
    batches = (_erased(batch, covered, schema) for batch in read_batches(table.io, file.file_path))
    for rows in chunks(batches):
        yield write_rows(table.io, table.metadata, day, partition, rows)


def _erased(batch: pa.RecordBatch, covered: Offsets, schema: pa.Schema) -> pa.RecordBatch:
    """The batch with all columns of the table. A file that is older than a column lacks it."""
    mask = pa.array(np.isin(batch["offset"].to_numpy(), covered))
    columns = []
    for each in schema:
        column = (
            batch[each.name].cast(each.type) if each.name in batch.schema.names else pa.nulls(len(batch), each.type)
        )
        if each.name == "erased":
            column = pc.or_(column, mask)
        elif each.name not in _KEPT:
            column = pc.if_else(mask, pa.scalar(None, each.type), column)
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, schema=schema)
