"""Archived files of page views, written as the archive writes them, without a broker and without Spark."""

import pickle
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import pyarrow as pa
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from truelog.archive.commit import Append
from truelog.archive.schema import TIME
from truelog.archive.writer import ArchivedFile, FileWriter, WriterSettings, blueprint, load_archived_file
from truelog.schema.event import load_events
from truelog.support.settings import Settings

TOPIC, TOPIC_ID = "page_view", "first-life"
MORNING = datetime(2026, 11, 21, tzinfo=UTC)


def kafka_records(partition: int, offsets: range, value: bytes = b"{}") -> pa.RecordBatch:
    """Records in the format of Spark's Kafka source, one second apart."""
    n = len(offsets)
    columns = {
        "topic": [TOPIC] * n,
        "partition": pa.array([partition] * n, pa.int32()),
        "offset": pa.array(offsets, pa.int64()),
        "broker_time": pa.array([MORNING + timedelta(seconds=o) for o in offsets], TIME),
        "key": [b"k"] * n,
        "value": [value] * n,
        "headers": [[{"key": "trace", "value": b"\x00\xff"}]] * n,
    }
    return pa.RecordBatch.from_pydict(columns)


def written(settings: Settings, table: TableMetadata, batch: pa.RecordBatch) -> list[ArchivedFile]:
    tables = {TOPIC: blueprint(table)}
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
