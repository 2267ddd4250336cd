"""Archived files of page views, written as the archive writes them, without a broker and without Spark."""

import json
import pickle
import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

import pyarrow as pa
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from tests.beds.archived import drop_archive
from truelog.archive.commit import Append, commit
from truelog.archive.schema import TIME
from truelog.archive.table import ensure_table, identifier, open_catalog
from truelog.archive.writer import ArchivedFile, FileWriter, WriterSettings, blueprint, load_archived_file
from truelog.erasure.erasure import Erasure, Erasures
from truelog.erasure.subject import Subject
from truelog.log.positions import Positions
from truelog.schema.loading.events import load_events
from truelog.support.settings import Settings

TOPIC, TOPIC_ID = "page_view", "first-life"
# An event of a day, an event of the day after, and an invalid record.
OF_TWO_DAYS = (
    b'{"event_id": "a", "occurred_at": "2026-03-01T00:00:00Z", "visitor_id": "v", "url": "https://shop.example/a"}',
    b'{"event_id": "b", "occurred_at": "2026-03-02T00:00:00Z", "visitor_id": "v", "url": "https://shop.example/a"}',
    b'{"event_id": 5}',
)
MORNING = datetime(2026, 11, 21, tzinfo=UTC)


def kafka_records(partition: int, offsets: range, value: bytes = b"{}") -> pa.RecordBatch:
    """Records in the format of Spark's Kafka source, one second apart."""
    headers: list[dict[str, object]] = [{"key": "trace", "value": b"\x00\xff"}]
    return _records(partition, offsets, [b"k"] * len(offsets), [value] * len(offsets), [headers] * len(offsets))


def records_of(topic: str, values: Sequence[bytes]) -> pa.RecordBatch:
    """These values as the first records of partition 0 of a topic. Each key is the record's value, cut."""
    n = len(values)
    headers: list[dict[str, object]] = [{"key": "trace", "value": b"\x00\xff"}]
    found = _records(0, range(n), [each[:50] for each in values], values, [headers] * n)
    return found.set_column(0, "topic", pa.array([topic] * n))


def visits(partition: int, visitors: Mapping[int, str]) -> pa.RecordBatch:
    """A valid page view at each offset. Its key, its value and its headers name the visitor."""
    names = [visitor.encode() for visitor in visitors.values()]
    values = [
        json.dumps(
            {
                "event_id": f"{partition}-{offset}",
                "occurred_at": (MORNING + timedelta(seconds=offset)).isoformat(),
                "visitor_id": visitor,
                "url": f"https://shop.example/{offset}",
            }
        ).encode()
        for offset, visitor in visitors.items()
    ]
    return _records(partition, list(visitors), names, values, [[{"key": "who", "value": name}] for name in names])


def _records(
    partition: int,
    offsets: Sequence[int],
    keys: Sequence[bytes],
    values: Sequence[bytes],
    headers: Sequence[list[dict[str, object]]],
) -> pa.RecordBatch:
    n = len(offsets)
    columns = {
        "topic": [TOPIC] * n,
        "partition": pa.array([partition] * n, pa.int32()),
        "offset": pa.array(offsets, pa.int64()),
        "broker_time": pa.array([MORNING + timedelta(seconds=o) for o in offsets], TIME),
        "key": keys,
        "value": values,
        "headers": headers,
    }
    return pa.RecordBatch.from_pydict(columns)


def written(settings: Settings, table: TableMetadata, batch: pa.RecordBatch, topic: str = TOPIC) -> list[ArchivedFile]:
    tables = {topic: blueprint(table)}
    writer: FileWriter = pickle.loads(pickle.dumps(FileWriter(WriterSettings.of(settings), load_events(), tables, {})))
    return [load_archived_file(b["file"][0].as_py(), tables) for b in writer(iter([batch]))]


def append(settings: Settings, table: Table, begin: Mapping[int, int], end: Mapping[int, int]) -> Append:
    """An append with a record at every offset in the range."""
    files, records = [], {}
    for partition in end:
        offsets = range(begin.get(partition, 0), end[partition])
        records[partition] = len(offsets)
        if offsets:
            files += written(settings, table.metadata, kafka_records(partition, offsets))
    return Append(TOPIC, TOPIC_ID, begin, end, records, tuple(f.data_file for f in files))


def append_visits(settings: Settings, table: Table, begin: Mapping[int, int], *visitors: str) -> Append:
    """An append with visits of these visitors from `begin` on, of each partition the same."""
    files, end = [], {p: start + len(visitors) for p, start in begin.items()}
    for partition, start in begin.items():
        files += written(settings, table.metadata, visits(partition, dict(enumerate(visitors, start))))
    records = dict.fromkeys(begin, len(visitors))
    return Append(TOPIC, TOPIC_ID, begin, end, records, tuple(f.data_file for f in files))


def archive_values(settings: Settings, values: Sequence[bytes]) -> None:
    """Replace the archive of page views by one with these records, each of a commit of its own."""
    with open_catalog(settings) as catalog:
        drop_archive(catalog, TOPIC)
        ensure_table(catalog, load_events()[TOPIC], TOPIC_ID, {0: 0})
    for offset, value in enumerate(values):
        append_value(settings, offset, value)


def append_value(settings: Settings, offset: int, value: bytes) -> None:
    """Archive one more page view of partition 0."""
    with open_catalog(settings) as catalog:
        batch = kafka_records(0, range(offset, offset + 1), value)
        files = written(settings, catalog.load_table(identifier(TOPIC)).metadata, batch)
        data = tuple(each.data_file for each in files)
        commit(catalog, Append(TOPIC, TOPIC_ID, {0: offset}, {0: offset + 1}, {0: 1}, data))


def erasures_of(settings: Settings, visitor: str, ends: Mapping[int, int], topic_id: str = TOPIC_ID) -> Erasures:
    """An erasure of a visitor's page views below these offsets."""
    secret = settings.erasure_secret.get_secret_value().encode()
    subjects = frozenset({Subject.of(secret, "visitor_id", visitor)})
    positions = Positions({TOPIC: ends}, {TOPIC: topic_id})
    return Erasures(secret, (Erasure(uuid.uuid4(), subjects, {TOPIC: ("visitor_id",)}, positions),))
