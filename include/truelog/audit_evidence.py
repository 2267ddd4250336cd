"""Evidence for the audit: from the tables' metadata, the bucket's listing and the broker.

No data is read unless the metadata leave a question open: where bounds of files overlap, and where offsets have no
record.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from numpy.typing import NDArray
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from truelog import topics
from truelog.archive_table import Standing, identifier, open_catalog
from truelog.audit import Evidence, File, Hole, Report, gaps, judge, overlaps
from truelog.bucket import sizes
from truelog.errors import ServiceDown
from truelog.event import EventType, load_events
from truelog.positions import Positions
from truelog.settings import Settings

_POLL_SECONDS = 30


@dataclass(frozen=True)
class Log:
    """What the broker says of the topics: where each partition begins and ends."""

    begins: Positions
    ends: Positions


def audit(settings: Settings) -> Report:
    """The audit of every declared topic that was ever archived."""
    types, evidence, orphans = load_events(), list[Evidence](), 0
    with open_catalog(settings) as catalog:
        tables = {}
        for name in types:
            try:
                tables[name] = catalog.load_table(identifier(name))
            except NoSuchTableError:
                continue
        log = Log(topics.earliest_offsets(settings, tables), topics.end_offsets(settings, tables))
        for name, table in tables.items():
            listed = sizes(settings, f"{table.location()}/data/")
            files = [_file(table, task.file, listed) for task in table.scan().plan_files()]
            orphans += len(listed.keys() - _ever_live(table))
            evidence += _evidence(settings, types[name], table, files, log)
    return judge(evidence, orphans)


def _file(table: Table, file: DataFile, listed: Mapping[str, int]) -> File:
    field = table.schema().find_field("offset").field_id
    first, last = (int.from_bytes(b[field], "little", signed=True) for b in (file.lower_bounds, file.upper_bounds))
    partition = int(file.partition[1])
    found = listed.get(file.file_path)
    return File(file.file_path, partition, first, last, file.record_count, file.file_size_in_bytes, found)


def _ever_live(table: Table) -> set[str]:
    """Files of every snapshot that is kept: those compacted away are no orphans before they expire."""
    return set(table.inspect.all_files()["file_path"].to_pylist()) if table.current_snapshot() else set()


def _evidence(
    settings: Settings, event_type: EventType, table: Table, files: list[File], log: Log
) -> Iterator[Evidence]:
    """One piece of evidence for each partition that the broker or the archive knows."""
    stands, topic = Standing.of(table.metadata), event_type.name
    for partition in sorted(log.ends.offsets[topic].keys() | stands.positions.keys()):
        mine = tuple(f for f in files if f.partition == partition)
        began, position = stands.began.get(partition, 0), stands.positions.get(partition, 0)
        offsets = _Offsets(table, partition, readable=all(f.found_size is not None for f in mine))
        missing = position - began != sum(f.records for f in mine)
        holes = gaps(offsets.between(began, position).tolist(), began, position) if missing and offsets.readable else []
        yield Evidence(
            topic=topic,
            partition=partition,
            same_topic=stands.topic_id == log.ends.ids[topic],
            began=began,
            position=position,
            committed=stands.records.get(partition, 0),
            files=mine,
            shared=sum(offsets.repeated(first, last) for first, last in overlaps(mine)),
            holes=tuple(_explained(settings, event_type, partition, holes, log)),
            log_begins=log.begins.at(topic, partition),
            log_ends=log.ends.at(topic, partition),
        )


@dataclass(frozen=True)
class _Offsets:
    """The offsets that a partition's files hold, read from them; not readable where one of them is gone."""

    table: Table
    partition: int
    readable: bool

    def between(self, begin: int, end: int) -> NDArray[np.int64]:
        within = f"partition = {self.partition} and offset >= {begin} and offset < {end}"
        scan = self.table.scan(within, selected_fields=("offset",))
        return np.sort(scan.to_arrow()["offset"].to_numpy())

    def repeated(self, first: int, last: int) -> int:
        """How many records share their offset with another one."""
        if not self.readable:
            return 0
        offsets = self.between(first, last + 1)
        return len(offsets) - len(np.unique(offsets))


def _explained(
    settings: Settings, event_type: EventType, partition: int, holes: list[tuple[int, int]], log: Log
) -> Iterator[Hole]:
    """Why there is no record: compacted away, or a place where the broker holds none that was committed."""
    if event_type.topic.compacted or not holes:
        yield from (Hole(begin, end, "compacted") for begin, end in holes)
        return
    begins = log.begins.at(event_type.name, partition)
    held = _held(settings, event_type.name, partition, max(begins, holes[0][0]), holes[-1][1])
    for begin, end in holes:
        empty = begin >= begins and not np.any((held >= begin) & (held < end))
        yield Hole(begin, end, "transaction" if empty else None)


def _held(settings: Settings, topic: str, partition: int, begin: int, end: int) -> NDArray[np.int64]:
    """The offsets of the committed records that the broker holds in [begin, end)."""
    consumer = Consumer(
        settings.kafka() | {"group.id": "truelog-audit", "enable.auto.commit": "false", "enable.partition.eof": "true"}
    )
    held: list[int] = []
    try:
        consumer.assign([TopicPartition(topic, partition, begin)])
        while begin < end:
            message = consumer.poll(_POLL_SECONDS)
            if message is None:
                raise ServiceDown(f"Kafka gave no record of {topic} {partition} within {_POLL_SECONDS} s")
            error = message.error()
            if error is not None and error.code() == KafkaError._PARTITION_EOF:
                break
            if error is not None:
                raise KafkaException(error)
            begin = int(message.offset() or 0) + 1
            held.append(begin - 1)
    finally:
        consumer.close()
    return np.array(held, dtype=np.int64)
