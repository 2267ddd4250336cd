"""Evidence for the audit, from the table metadata, the bucket listing and the broker.

Data is read only where the metadata leaves a question open: where file bounds overlap and where offsets have no
record. A deep audit reads all records and compares them with the records that the broker still has.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
from confluent_kafka import Message
from numpy.typing import NDArray
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from truelog.archive.archive_table import Progress, identifier, open_catalog
from truelog.archive.audit import (
    AuditedFile,
    AuditReport,
    Evidence,
    OffsetGap,
    files_out_of_range,
    findings,
    gaps,
    missing_files,
    missing_records,
    overlaps,
)
from truelog.control import event_registry
from truelog.log import topics
from truelog.log.kafka_reader import messages
from truelog.log.positions import Positions
from truelog.schema.event import EventType
from truelog.storage.bucket import object_sizes
from truelog.storage.database import connect
from truelog.support.settings import Settings

_COMPARED_AT_ONCE = 20_000  # offsets
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class BrokerOffsets:
    """The beginning and end of each partition at the broker."""

    begins: Positions
    ends: Positions


def run_audit(settings: Settings, *, deep: bool = False) -> AuditReport:
    """Audit every declared topic that was ever archived, and store the result."""
    types, evidence, orphans = event_registry.event_types(settings), list[Evidence](), 0
    with open_catalog(settings) as catalog:
        tables = _tables(catalog, types)
        log = BrokerOffsets(topics.earliest_offsets(settings, tables), topics.end_offsets(settings, tables))
        for name, table in tables.items():
            listed = object_sizes(settings, f"{table.location()}/data/")
            files = _files(table, listed)
            orphans += len(listed.keys() - _ever_live(table))
            for number in sorted(log.ends.offsets[name].keys() | Progress.of(table.metadata).positions.keys()):
                of_partition = tuple(f for f in files if f.partition == number)
                evidence.append(_Partition(settings, types[name], table, number, of_partition).evidence(log, deep=deep))
    report = findings(evidence, orphans)
    with connect(settings) as connection:
        connection.execute("INSERT INTO truelog.audit (faults) VALUES (%s)", (list(report.faults),))
    return report


def incomplete_ranges(settings: Settings, names: Iterable[str]) -> list[str]:
    """File faults of these topics that the tables and the bucket show without the broker."""
    found: list[str] = []
    with open_catalog(settings) as catalog:
        for table in _tables(catalog, names).values():
            found += file_faults(table, object_sizes(settings, f"{table.location()}/data/"))
    return found


def file_faults(table: Table, listed: Mapping[str, int]) -> list[str]:
    """The faults of an archive table that its metadata and the bucket's objects show without the broker."""
    files, progress, found = _files(table, listed), Progress.of(table.metadata), list[str]()
    for number, position in progress.positions.items():
        of_partition = [f for f in files if f.partition == number]
        began, committed = progress.began.get(number, 0), progress.records.get(number, 0)
        faults = [
            *missing_files(of_partition),
            *missing_records(of_partition, committed),
            *files_out_of_range(of_partition, began, position),
        ]
        found += [f"{table.name()[-1]} {number}: {fault}" for fault in faults]
    return found


def unreadable_files(table: Table, listed: Mapping[str, int]) -> list[str]:
    """A fault for each live file of any table that is missing or has the wrong size."""
    files = (task.file for task in table.scan().plan_files())
    return [f"{f.file_path} is missing or incomplete" for f in files if listed.get(f.file_path) != f.file_size_in_bytes]


def _tables(catalog: Catalog, types: Iterable[str]) -> dict[str, Table]:
    tables = {}
    for name in types:
        try:
            tables[name] = catalog.load_table(identifier(name))
        except NoSuchTableError:
            continue
    return tables


def _files(table: Table, listed: Mapping[str, int]) -> list[AuditedFile]:
    return [_file(table, task.file, listed) for task in table.scan().plan_files()]


def _file(table: Table, file: DataFile, listed: Mapping[str, int]) -> AuditedFile:
    field = table.schema().find_field("offset").field_id
    first, last = (int.from_bytes(b[field], "little", signed=True) for b in (file.lower_bounds, file.upper_bounds))
    partition = int(file.partition[1])
    found = listed.get(file.file_path)
    return AuditedFile(file.file_path, partition, first, last, file.record_count, file.file_size_in_bytes, found)


def _ever_live(table: Table) -> set[str]:
    """The files of every retained snapshot: a compacted file is not an orphan until its snapshot expires."""
    return set(table.inspect.all_files()["file_path"].to_pylist()) if table.current_snapshot() else set()


@dataclass(frozen=True)
class _Partition:
    """One partition of one table in the audit."""

    settings: Settings
    event_type: EventType
    table: Table
    number: int
    files: tuple[AuditedFile, ...]

    def evidence(self, log: BrokerOffsets, *, deep: bool) -> Evidence:
        progress, topic = Progress.of(self.table.metadata), self.event_type.name
        began, position = progress.began.get(self.number, 0), progress.positions.get(self.number, 0)
        begins = log.begins.at(topic, self.number)
        readable = all(
            f.found_size == f.size for f in self.files
        )  # otherwise a file is missing or has the wrong size, which is already a fault
        complete = sum(f.records for f in self.files) == position - began
        lost = [OffsetGap(a, b, "accepted loss") for a, b in progress.lost.get(self.number, [])]
        missing = [] if complete or not readable else self._missing(began, position, lost)
        return Evidence(
            topic=topic,
            partition=self.number,
            same_topic=progress.topic_id == log.ends.ids[topic],
            began=began,
            position=position,
            committed=progress.records.get(self.number, 0),
            files=self.files,
            shared=sum(self._repeated(first, last) for first, last in overlaps(self.files)) if readable else 0,
            holes=(*lost, *self._explained(missing, begins)),
            differing=tuple(self._differing(max(began, begins), position)) if deep and readable else (),
            log_begins=begins,
            log_ends=log.ends.at(topic, self.number),
        )

    def _missing(self, began: int, position: int, lost: list[OffsetGap]) -> list[tuple[int, int]]:
        offsets = self._offsets(began, position)
        known = [np.arange(hole.start, hole.end) for hole in lost]
        return gaps(np.sort(np.concatenate([offsets, *known])).tolist(), began, position)

    def _repeated(self, first: int, last: int) -> int:
        """The number of records that repeat another record's offset."""
        offsets = self._offsets(first, last + 1)
        return len(offsets) - len(np.unique(offsets))

    def _explained(self, holes: list[tuple[int, int]], begins: int) -> Iterator[OffsetGap]:
        """Each hole with its explanation: the topic is compacted, or the broker has no committed record there."""
        if self.event_type.topic.compacted or not holes:
            yield from (OffsetGap(begin, end, "compacted") for begin, end in holes)
            return
        held = np.array([m.offset() for m in self._messages(max(begins, holes[0][0]), holes[-1][1])], np.int64)
        for begin, end in holes:
            empty = begin >= begins and not np.any((held >= begin) & (held < end))
            yield OffsetGap(begin, end, "transaction" if empty else None)

    def _differing(self, begin: int, end: int) -> Iterator[int]:
        """Offsets whose bytes differ between the archive and the log, except erased records, which have no bytes."""
        for start in range(begin, end, _COMPARED_AT_ONCE):
            stop = min(start + _COMPARED_AT_ONCE, end)
            rows = self._rows(start, stop, ("offset", "broker_time", "key", "value", "headers", "erased"))
            archived = {row["offset"]: row for row in rows}
            for message in self._messages(start, stop):
                offset = message.offset() or 0
                if offset not in archived or not _same(archived[offset], message):
                    yield offset

    def _offsets(self, begin: int, end: int) -> NDArray[np.int64]:
        return np.array([row["offset"] for row in self._rows(begin, end, ("offset",))], np.int64)

    def _rows(self, begin: int, end: int, columns: tuple[str, ...]) -> list[dict[str, Any]]:
        within = f"partition = {self.number} and offset >= {begin} and offset < {end}"
        rows: list[dict[str, Any]] = self.table.scan(within, selected_fields=columns).to_arrow().to_pylist()
        return rows

    def _messages(self, begin: int, end: int) -> Iterator[Message]:
        return messages(self.settings, self.event_type.name, self.number, begin, end)


def _same(row: Mapping[str, Any], message: Message) -> bool:
    if row["erased"]:
        return True
    headers = [(h["key"], h["value"]) for h in row["headers"] or []]
    time = _EPOCH + timedelta(milliseconds=message.timestamp()[1])
    archived = (row["broker_time"], row["key"], row["value"], headers)
    return archived == (time, message.key(), message.value(), message.headers() or [])
