"""The audit explains holes that Kafka has dropped, finds lost files, and needs little memory, on real services."""

import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa
import pytest
from confluent_kafka import Producer, TopicPartition
from pyiceberg.catalog import Catalog
from pyiceberg.io import load_file_io
from pyiceberg.io.pyarrow import write_file
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionFieldValue, PartitionKey
from pyiceberg.table import WriteTask

from tests.beds.archived import drop_archive
from tests.deadline import deadline, until
from tests.deleted_records import delete_records
from tests.library.archive_files import MORNING
from tests.library.restored_catalog import restored
from truelog.archive import audit_evidence
from truelog.archive.audit import OffsetGap
from truelog.archive.audit_evidence import COUNTED, MOST_LISTED, run_audit
from truelog.archive.commit import Append, commit
from truelog.archive.erasing.erase import ArchiveEraser
from truelog.archive.schema import arrow_schema
from truelog.archive.table import ensure_table, identifier, open_catalog
from truelog.erasure.erasure import Erasures
from truelog.log import topics
from truelog.log.kafka_reader import messages
from truelog.measures.registry import sql_functions
from truelog.schema.event import EventType
from truelog.schema.loading.events import load_events
from truelog.storage import bucket
from truelog.storage.migration import migrate
from truelog.support.errors import CatalogBehind, ServiceDown
from truelog.support.settings import KafkaUser, Settings

TOPIC = "search"
MANY = 3_000_000  # records
MEMORY_MB = 256  # docs/limits.md

AUDIT = f"""
import resource
from truelog.archive import audit_evidence
from truelog.support.settings import KafkaUser, Settings
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
before = peak()
report = audit_evidence.run_audit(Settings())
[found] = [e for e in report.partitions if e.topic == "{TOPIC}" and e.partition == 0]
print(peak() - before, found.missing, len(found.holes), found.shared)
"""


class Archive:
    """The archive of one topic, written from real records of the log or from generated rows."""

    def __init__(self, settings: Settings, catalog: Catalog) -> None:
        self.settings, self.catalog, self.type = settings, catalog, load_events()[TOPIC]
        ends = topics.end_offsets(settings, [TOPIC])
        self.topic_id, self.ends = ends.ids[TOPIC], dict(ends.offsets[TOPIC])
        ensure_table(catalog, self.type, self.topic_id, self.ends)

    def add(self, end: int, *rows: pa.Table) -> list[DataFile]:
        """Commit rows of partition 0, and move its position to `end`."""
        begin, files = dict(self.ends), [self._file(each) for each in rows]
        self.ends[0] = end
        records = {0: sum(len(each) for each in rows)}
        commit(self.catalog, Append(TOPIC, self.topic_id, begin, dict(self.ends), records, tuple(files)))
        return files

    def faults(self) -> list[str]:
        return [each for each in run_audit(self.settings).faults if each.startswith(TOPIC)]

    def holes(self) -> tuple[OffsetGap, ...]:
        [found] = [e for e in run_audit(self.settings).partitions if (e.topic, e.partition) == (TOPIC, 0)]
        return found.holes

    def _file(self, rows: pa.Table) -> DataFile:
        metadata = self.catalog.load_table(identifier(TOPIC)).metadata
        spec, schema = metadata.spec(), metadata.schema()
        values = {"log_day": MORNING, "partition": 0}
        key = PartitionKey([PartitionFieldValue(f, values[f.name]) for f in spec.fields], spec, schema)
        io = load_file_io(self.settings.iceberg(), metadata.location)
        task = WriteTask(uuid.uuid4(), 0, schema, rows.to_batches(), partition_key=key)
        [written] = write_file(io, metadata, iter([task]))
        return written


def rows_at(offsets: range, event_type: EventType) -> pa.Table:
    """Rows at these offsets, with 100 bytes each."""
    schema, n = arrow_schema(event_type), len(offsets)
    given = {
        "partition": pa.repeat(0, n),
        "offset": pa.array(offsets, pa.int64()),
        "broker_time": pa.repeat(MORNING, n),
        "log_day": pa.repeat(MORNING, n),
        "erased": pa.repeat(False, n),
        "value": pa.repeat(b"x" * 100, n),
    }
    columns = [given[f.name].cast(f.type) if f.name in given else pa.nulls(n, f.type) for f in schema]
    return pa.Table.from_arrays(columns, schema=schema)


@pytest.fixture
def archive(platform: Settings) -> Iterator[Archive]:
    migrate(platform, sql_functions())
    topics.sync_topics(platform, load_events())
    with open_catalog(platform) as catalog:
        drop_archive(catalog, TOPIC)
        yield Archive(platform, catalog)


def transaction(settings: Settings) -> None:
    """Write one record and, after it, the marker of its transaction."""
    producer = Producer({**settings.kafka(), "transactional.id": uuid.uuid4().hex})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(TOPIC, b"{}", partition=0)
    producer.commit_transaction()


def archived_transaction(archive: Archive) -> list[DataFile]:
    """Archive a transaction, then let retention drop its record and its marker."""
    begin = archive.ends[0]
    transaction(archive.settings)
    end = begin + 2
    until(lambda: _require_end(archive.settings, end), 30, "the transaction's marker")
    found = [message.offset() or 0 for message in messages(archive.settings, TOPIC, 0, begin, end)]
    assert found == [begin]
    files = archive.add(end, rows_at(range(begin, begin + 1), archive.type))
    delete_records(topics.client(archive.settings, KafkaUser.ADMIN), TopicPartition(TOPIC, 0, end))
    return files


def _require_end(settings: Settings, end: int) -> None:
    if topics.committed_ends(topics.client(settings), [TOPIC]).at(TOPIC, 0) != end:
        raise ServiceDown("the marker is not in the log yet")


def test_a_marker_older_than_retention_is_no_fault(archive: Archive) -> None:
    archived_transaction(archive)
    end = archive.ends[0]
    assert archive.faults() == []
    assert archive.holes() == (OffsetGap(end - 1, end, COUNTED),)


def test_a_file_that_is_missing_from_the_bucket_is_a_fault(archive: Archive) -> None:
    [file] = archived_transaction(archive)
    place, key = file.file_path.removeprefix("s3://").split("/", 1)
    bucket.s3_client(archive.settings).delete_object(Bucket=place, Key=key)
    [fault] = archive.faults()
    assert "is missing from the bucket" in fault


def test_an_erasure_that_ends_before_the_files_are_listed_is_no_fault(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It deletes the files that it has replaced at once."""
    offset = archive.ends[0]
    [file] = archived_transaction(archive)
    covered = {file.file_path: np.array([offset])}
    eraser = ArchiveEraser(archive.catalog, archive.type, Erasures(b"", ()), covered)
    erased: list[int] = []

    def listed(settings: Settings, location: str) -> Mapping[str, int]:
        if not erased and location in file.file_path:
            erased.append(eraser.rewrite())
            assert eraser.expire() == 1
        return bucket.object_sizes(settings, location)

    monkeypatch.setattr(audit_evidence, "object_sizes", listed)
    assert archive.faults() == []
    assert erased == [1]


def test_a_file_that_the_table_lost_is_a_fault_although_the_log_has_dropped_its_records(archive: Archive) -> None:
    [file] = archived_transaction(archive)
    end = archive.ends[0]
    archive.catalog.load_table(identifier(TOPIC)).delete(f"partition = 0 and offset = {end - 2}")
    counts, hole = archive.faults()
    assert file.record_count == 1
    assert "the files contain 0 records, but 1 were committed" in counts
    assert f"[{end - 2}, {end}) is not archived" in hole


def test_a_catalog_that_was_restored_is_not_audited(archive: Archive) -> None:
    """Upkeep may have deleted the files that it names, and nothing is lost."""
    with restored(archive.settings):
        archive.add(archive.ends[0] + 1, rows_at(range(archive.ends[0], archive.ends[0] + 1), archive.type))
    with pytest.raises(CatalogBehind, match="truelog archive adopt"):
        run_audit(archive.settings)


def test_a_deep_audit_compares_only_what_the_log_has(archive: Archive) -> None:
    """A log that was cut ends before the archive's position. The log cannot be read from there on."""
    begin, end = archive.ends[0], archive.ends[0] + 3
    archive.add(end, rows_at(range(begin, end), archive.type))
    [fault] = [each for each in run_audit(archive.settings, deep=True).faults if each.startswith(TOPIC)]
    assert f"archived up to {end}, but the log ends at {begin}" in fault


def test_the_audit_of_many_records_needs_little_memory(archive: Archive) -> None:
    """Every second offset is a hole, so the audit must read all offsets. Two files overlap and share one record."""
    begin, step = archive.ends[0], MANY // 6
    for number in range(6):
        first = begin + 2 * step * number
        archive.add(first + 2 * step, rows_at(range(first, first + 2 * step, 2), archive.type))
    archive.add(archive.ends[0] + 1, rows_at(range(begin, begin + 1), archive.type))
    ended = subprocess.run(
        [sys.executable, "-c", AUDIT], capture_output=True, text=True, timeout=deadline(300), check=False
    )
    assert ended.returncode == 0, ended.stderr
    megabytes, missing, listed, shared = map(int, ended.stdout.split())
    assert (missing, listed, shared) == (MANY + 1, MOST_LISTED, 1)
    assert megabytes < MEMORY_MB
