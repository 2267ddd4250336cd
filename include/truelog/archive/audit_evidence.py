"""Evidence for the audit, from the table metadata, the bucket listing and the broker.

Data is read only if the metadata leaves a question open: if file bounds overlap or offsets have no record. A deep audit
reads all records and compares them with the records that the broker still has. Data is read in batches, so the audit
needs at most 256 MB, however many records the archive has (`archive.audit_offsets`).
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
from confluent_kafka import Message
from confluent_kafka.admin import AdminClient
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from truelog.archive.audit import (
    AuditedFile,
    AuditReport,
    Evidence,
    OffsetGap,
    files_out_of_range,
    findings,
    missing_files,
    missing_records,
    overlaps,
)
from truelog.archive.audit_offsets import AuditedRecords, Window, runs
from truelog.archive.catalog_pointer import load_newest
from truelog.archive.table import Progress, erased_counts, ever_live, identifier, open_catalog
from truelog.control import event_registry, log_cuts
from truelog.log import topics
from truelog.log.kafka_reader import headers_of, messages
from truelog.log.positions import Positions
from truelog.log.topic_health import gone_topics
from truelog.schema.event import EventType
from truelog.storage.bucket import object_sizes
from truelog.storage.database import connect
from truelog.support.settings import Settings

_COMPARED_AT_ONCE = 20_000  # offsets
_ABSENT, _ERASED = -1, -2  # digests; `hash` never returns -1
MOST_LISTED = 1_000  # holes or differing offsets of one partition in a report

ACCEPTED = "accepted loss"
# The archive found no record there when it read the offsets, and Kafka has since dropped them. See `_Coverage.holes`.
COUNTED = "no record when archived"


@dataclass(frozen=True)
class BrokerOffsets:
    """The beginning and end of each partition at the broker. An accepted cut ends the part that is not trusted.

    The log of a topic that Kafka no longer has begins and ends where its archive ends.
    """

    begins: Positions = field(default_factory=Positions)
    ends: Positions = field(default_factory=Positions)

    def with_ended(self, archived: Positions) -> "BrokerOffsets":
        return BrokerOffsets(self.begins.latest(archived), self.ends.latest(archived))


@dataclass(frozen=True)
class _Listed:
    """A table, its live files, and the objects in its folder of the bucket with their sizes."""

    table: Table
    files: tuple[AuditedFile, ...]
    objects: Mapping[str, int]

    @property
    def positions(self) -> Mapping[int, int]:
        """The end of the archive, by partition."""
        return Progress.of(self.table.metadata).positions


def run_audit(settings: Settings, *, deep: bool = False) -> AuditReport:
    """Audit every registered topic, and store the result.

    If the events are another environment's, a topic that it has deleted is left out.

    Raises:
        CatalogBehind: the database was restored from a backup, so the catalog names files that may be deleted.
        TopicRefused: Kafka does not show a topic.
    """
    types, evidence, orphans = event_registry.event_types(settings), list[Evidence](), 0
    gone, broker = gone_topics(settings, types.keys()), topics.client(settings)
    known = types.keys() - gone if settings.reads_events else types.keys()
    with open_catalog(settings) as catalog:
        for name in known:
            listed = _list_table(settings, catalog, name, types[name].topic_id)
            log = BrokerOffsets() if name in gone else _offsets(settings, broker, name)  # after the archive's position
            if listed is None:
                evidence += _never_archived(settings, log)
                continue
            if name in gone:
                log = log.with_ended(Positions({name: listed.positions}, {name: types[name].topic_id}))
            evidence += _of_table(settings, types[name], listed, log, deep=deep)
            orphans += len(listed.objects.keys() - ever_live(listed.table))
    report = findings(evidence, orphans, gone & known)
    with connect(settings) as connection:
        connection.execute("INSERT INTO truelog.audit (faults) VALUES (%s)", (list(report.faults),))
    return report


def _list_table(settings: Settings, catalog: Catalog, topic: str, topic_id: str) -> _Listed | None:
    """The topic's table and its objects, or None if nothing of the topic was ever archived.

    An erasure deletes the files that it has replaced. If it ends before the objects are listed, the table lacks files
    that the newest table does not have. Then the newest table is listed.
    """
    table = _newest(catalog, topic, topic_id)
    while table is not None:
        objects = object_sizes(settings, f"{table.location()}/data/")
        listed = _Listed(table, _files(table, objects), objects)
        missing = {each.path for each in listed.files if each.found_size is None}
        if not missing:
            return listed
        newest = _newest(catalog, topic, topic_id)
        if newest is not None and missing <= {task.file.file_path for task in newest.scan().plan_files()}:
            return listed
        table = newest
    return None


def _of_table(
    settings: Settings, event_type: EventType, listed: _Listed, log: BrokerOffsets, *, deep: bool
) -> Iterator[Evidence]:
    """The evidence about each partition of a table."""
    for number in sorted(log.ends.offsets.get(event_type.name, {}).keys() | listed.positions.keys()):
        of_partition = tuple(f for f in listed.files if f.partition == number)
        yield _Partition(settings, event_type, listed.table, number, of_partition).evidence(log, deep=deep)


def _offsets(settings: Settings, broker: AdminClient, topic: str) -> BrokerOffsets:
    """The broker's offsets of a topic, and where its trusted log begins."""
    begins = topics.begins(broker, [topic])
    with connect(settings) as connection:
        begins = begins.latest(log_cuts.trusted_from(connection, begins))
    return BrokerOffsets(begins, topics.ends(broker, [topic]))


def _never_archived(settings: Settings, log: BrokerOffsets) -> Iterator[Evidence]:
    """The evidence about a topic without a table. Nothing is archived since it was registered."""
    with connect(settings) as connection:
        registered = event_registry.beginnings(connection)
    for topic, partition in log.ends.only(registered.offsets).partitions():
        began, same_topic = registered.at(topic, partition), registered.ids[topic] == log.ends.ids[topic]
        bounds = log.begins.at(topic, partition), log.ends.at(topic, partition)
        yield Evidence(topic, partition, same_topic, began, began, 0, (), 0, (), *bounds)


def incomplete_ranges(settings: Settings, names: Iterable[str]) -> list[str]:
    """File faults of these topics that the tables and the bucket show without the broker.

    Raises:
        CatalogBehind: the database was restored from a backup, so the catalog names files that may be deleted.
    """
    found: list[str] = []
    with connect(settings) as connection:
        registered = event_registry.beginnings(connection).ids
    with open_catalog(settings) as catalog:
        for name in names:
            if listed := _list_table(settings, catalog, name, registered.get(name, "")):
                found += file_faults(listed.table, listed.objects)
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


def _newest(catalog: Catalog, topic: str, topic_id: str) -> Table | None:
    with suppress(NoSuchTableError):
        return load_newest(catalog, identifier(topic), topic_id)
    return None


def _files(table: Table, listed: Mapping[str, int]) -> tuple[AuditedFile, ...]:
    return tuple(_file(table, task.file, listed) for task in table.scan().plan_files())


def _file(table: Table, file: DataFile, listed: Mapping[str, int]) -> AuditedFile:
    field = table.schema().find_field("offset").field_id
    first, last = (int.from_bytes(b[field], "little", signed=True) for b in (file.lower_bounds, file.upper_bounds))
    partition = int(file.partition[1])
    found = listed.get(file.file_path)
    return AuditedFile(file.file_path, partition, first, last, file.record_count, file.file_size_in_bytes, found)


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
        begins, ends = log.begins.at(topic, self.number), log.ends.at(topic, self.number)
        committed = progress.records.get(self.number, 0)
        readable = all(
            f.found_size == f.size for f in self.files
        )  # otherwise a file is missing or has the wrong size, which is already a fault
        held = sum(f.records for f in self.files)
        coverage = _Coverage(committed == held)
        if readable and (held != position - began or overlaps(self.files)):
            lost = progress.lost.get(self.number, [])
            for window in AuditedRecords(self.table, self.files).windows(began, position):
                coverage.add(window.repeated, self._holes(window, lost, begins, ends))
        return Evidence(
            topic=topic,
            partition=self.number,
            same_topic=progress.topic_id == log.ends.ids[topic],
            began=began,
            position=position,
            committed=committed,
            files=self.files,
            shared=coverage.repeated,
            holes=coverage.holes,
            missing=coverage.missing,
            erased=erased_counts(self.table).get(self.number, 0),
            differing=tuple(self._differing(max(began, begins), min(position, ends))) if deep and readable else (),
            log_begins=begins,
            log_ends=ends,
        )

    def _holes(self, window: Window, lost: list[tuple[int, int]], begins: int, ends: int) -> Iterator[OffsetGap]:
        """The window's holes: accepted losses, then the ranges without a record, each with its explanation."""
        missing, start = ~window.held, window.start
        for first, end in lost:
            known = slice(max(0, first - start), max(0, end - start))
            if np.any(missing[known]):
                yield OffsetGap(max(first, start), min(end, start + len(missing)), ACCEPTED)
            missing[known] = False
        if self.event_type.topic.compacted:
            yield from (OffsetGap(*hole, "compacted") for hole in runs(missing, start))
            return
        first, last = (min(max(0, each - start), len(missing)) for each in (begins, ends))
        yield from (OffsetGap(*hole, COUNTED) for hole in runs(missing[:first], start))
        yield from (OffsetGap(*hole, COUNTED) for hole in runs(missing[max(first, last) :], start + max(first, last)))
        in_log = runs(missing[first:last], start + first)
        if in_log:
            yield from self._in_log(in_log)

    def _in_log(self, holes: list[tuple[int, int]]) -> Iterator[OffsetGap]:
        """Holes that the broker can explain, because it still has the offsets: it has no committed record there."""
        begin, end = holes[0][0], holes[-1][1]
        committed = np.zeros(end - begin, np.bool_)
        for message in self._messages(begin, end):
            committed[(message.offset() or 0) - begin] = True
        for first, last in holes:
            yield OffsetGap(first, last, None if np.any(committed[first - begin : last - begin]) else "transaction")

    def _differing(self, begin: int, end: int) -> list[int]:
        """Offsets whose bytes differ between the archive and the log, except erased records, which have no bytes."""
        found: list[int] = []
        for start in range(begin, end, _COMPARED_AT_ONCE):
            stop = min(start + _COMPARED_AT_ONCE, end)
            archived = self._digests(start, stop)
            for message in self._messages(start, stop):
                offset = message.offset() or 0
                if archived.get(offset, _ABSENT) not in (_ERASED, _digest_of(message)):
                    found.append(offset)
                    if len(found) == MOST_LISTED:
                        return found
        return found

    def _digests(self, begin: int, end: int) -> dict[int, int]:
        """A hash of each archived record in [begin, end)."""
        digests: dict[int, int] = {}
        names = ("broker_time", "key", "value", "headers", "erased")
        for batch in AuditedRecords(self.table, self.files).batches(begin, end, names):
            columns = (batch[name].cast(pa.int64()) if name == "broker_time" else batch[name] for name in names)
            for offset, *row in zip(batch["offset"], *columns, strict=True):
                micros, key, value, headers, erased = (each.as_py() for each in row)
                listed = tuple((h["key"], h["value"]) for h in headers or [])
                digests[offset.as_py()] = _ERASED if erased else hash((micros, key, value, listed))
        return digests

    def _messages(self, begin: int, end: int) -> Iterator[Message]:
        return messages(self.settings, self.event_type.name, self.number, begin, end)


@dataclass
class _Coverage:
    """The holes and repeated records of one partition, collected window by window."""

    as_committed: bool  # the files contain as many records as were committed
    repeated: int = 0
    missing: int = 0
    explained: list[OffsetGap] = field(default_factory=list)
    unexplained: list[OffsetGap] = field(default_factory=list)

    def add(self, repeated: int, holes: Iterable[OffsetGap]) -> None:
        self.repeated += repeated
        for hole in holes:
            self.missing += hole.end - hole.start
            listed = self.explained if hole.why else self.unexplained
            if listed and (listed[-1].end, listed[-1].why) == (hole.start, hole.why):
                listed[-1] = OffsetGap(listed[-1].start, hole.end, hole.why)  # continues from the window before
            elif len(listed) < MOST_LISTED:
                listed.append(hole)

    @property
    def holes(self) -> tuple[OffsetGap, ...]:
        """All holes. Holes that only the counts explain are unexplained if the counts are wrong."""
        trusted = self.as_committed and not self.repeated
        known = (h if trusted or h.why != COUNTED else replace(h, why=None) for h in self.explained)
        return tuple(sorted((*known, *self.unexplained), key=lambda each: each.start))


def _digest_of(message: Message) -> int:
    time = message.timestamp()[1] * 1000
    return hash((time, message.key(), message.value(), tuple(headers_of(message))))
