"""Archive commits in a real catalog and bucket are refused unless the batch begins at the table's positions."""

import json
import logging
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import boto3
import pytest
from hypothesis import given
from hypothesis import settings as settings_of
from hypothesis import strategies as st
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Snapshot

from tests.beds.archived import drop_archive
from tests.library.archive_files import MORNING, TOPIC, TOPIC_ID, append, kafka_records, written
from truelog.archive import commit as archive_commit
from truelog.archive.catalog_pointer import load_newest, read_pointer
from truelog.archive.commit import Append, commit
from truelog.archive.log_day import Start
from truelog.archive.table import Progress, ensure_table, identifier
from truelog.schema.loading.events import load_events
from truelog.support.errors import CatalogBehind, Stale, TopicRecreated
from truelog.support.settings import CATALOG, Settings


class Interrupted(SqlCatalog):
    """A catalog that calls `between` once, after a commit has read the table and before the commit writes."""

    between: Callable[[], Any] | None = None

    def commit_table(self, *args: Any, **kwargs: Any) -> Any:
        between, self.between = self.between, None
        if between:
            between()
        return super().commit_table(*args, **kwargs)


@pytest.fixture
def catalog(platform: Settings) -> Iterator[Interrupted]:
    catalog = Interrupted(CATALOG, **platform.iceberg())
    drop_archive(catalog, TOPIC)
    ensure_table(catalog, load_events()[TOPIC], TOPIC_ID, {0: 0, 1: 0})
    yield catalog
    catalog.close()


def test_a_suspended_commit_soon_loses_its_locks(catalog: Interrupted) -> None:
    with catalog.engine.connect() as connection:
        found = connection.exec_driver_sql("SHOW idle_in_transaction_session_timeout").scalar()
        assert connection.exec_driver_sql("SHOW search_path").scalar() == "iceberg"
    assert found == "15s"


def manifest_lists(settings: Settings, table: Table) -> list[str]:
    s3 = boto3.client(
        "s3",
        endpoint_url=settings.s3_endpoint,
        region_name=settings.s3_region,
        aws_access_key_id=settings.s3_access_key,
        aws_secret_access_key=settings.s3_secret_key.get_secret_value(),
    )
    prefix = table.location().split("/", 3)[3] + "/metadata/snap-"
    found = s3.list_objects_v2(Bucket=settings.s3_bucket, Prefix=prefix)
    return [each["Key"] for each in found.get("Contents", [])]


def rows(table: Table) -> list[tuple[int, int]]:
    found = table.refresh().scan(selected_fields=("partition", "offset")).to_arrow()
    return sorted(zip(found["partition"].to_pylist(), found["offset"].to_pylist(), strict=True))


@pytest.fixture
def table(catalog: Interrupted) -> Table:
    return catalog.load_table(identifier(TOPIC))


def test_a_commit_adds_rows_and_advances_positions_together(
    platform: Settings, catalog: Interrupted, table: Table
) -> None:
    commit(catalog, append(platform, table, {0: 0, 1: 0}, {0: 3, 1: 0}))
    commit(catalog, append(platform, table, {0: 3, 1: 0}, {0: 4, 1: 2, 2: 1}))  # partition 2 is new
    progress = Progress.of(table.refresh().metadata)
    assert rows(table) == [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0), (1, 1), (2, 0)]
    counts = {0: 4, 1: 2, 2: 1}
    assert progress == Progress(TOPIC_ID, counts, counts, {0: 0, 1: 0}, readings={0: {}})


@pytest.mark.parametrize(
    ("begin", "end"),
    [({0: 0}, {0: 5}), ({0: 0}, {0: 9}), ({0: 3}, {0: 8}), ({0: 7}, {0: 9})],
    ids=["replay", "other end", "overlap", "gap"],
)
def test_a_batch_with_another_begin_is_refused(
    platform: Settings, catalog: Interrupted, table: Table, begin: dict[int, int], end: dict[int, int]
) -> None:
    commit(catalog, append(platform, table, {0: 0}, {0: 5}))
    with pytest.raises(Stale, match="its positions are"):
        commit(catalog, append(platform, table, begin, end))
    assert rows(table) == [(0, offset) for offset in range(5)]


@pytest.mark.parametrize(
    "begin",
    [{0: 5, 1: 0}, {0: 0, 1: 1}, {0: 5}, {0: 5, 1: 1, 2: 1}],
    ids=["one partition replayed", "the other replayed", "one partition absent", "gap in a new partition"],
)
def test_a_batch_that_differs_in_one_partition_is_refused(
    platform: Settings, catalog: Interrupted, table: Table, begin: dict[int, int]
) -> None:
    commit(catalog, append(platform, table, {0: 0, 1: 0}, {0: 5, 1: 1}))
    with pytest.raises(Stale, match="its positions are"):
        commit(catalog, append(platform, table, begin, begin | {0: 6}))
    assert rows(table) == [*((0, offset) for offset in range(5)), (1, 0)]


def test_a_catalog_that_was_set_back_gets_no_commit(platform: Settings, catalog: Interrupted, table: Table) -> None:
    commit(catalog, append(platform, table, {0: 0}, {0: 1}))
    backup = catalog.load_table(identifier(TOPIC)).metadata_location
    commit(catalog, append(platform, table, {0: 1}, {0: 2}))
    catalog.drop_table(identifier(TOPIC))
    restored = catalog.register_table(identifier(TOPIC), backup)
    with pytest.raises(CatalogBehind):
        commit(catalog, append(platform, restored, {0: 1}, {0: 2}))
    assert catalog.load_table(identifier(TOPIC)).metadata_location == backup


def test_commits_keep_the_metadata_small(
    platform: Settings, catalog: Interrupted, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Old snapshots are forgotten, and manifests are merged. Every record stays, and the pointer names the result."""
    monkeypatch.setattr(archive_commit, "_PLANNING", timedelta())
    monkeypatch.setattr(archive_commit, "_PORTION", 3)
    with table.transaction() as change:
        change.set_properties({"commit.manifest.min-count-to-merge": "4"})
    made, manifests = [], []
    for offset in range(12):
        commit(catalog, append(platform, table.refresh(), {0: offset}, {0: offset + 1}))
        current = table.refresh().current_snapshot()
        assert current is not None
        made.append(len(table.metadata.snapshots))
        manifests.append(len(current.manifests(table.io)))
    assert max(made) <= 4
    assert max(manifests) <= 4
    assert rows(table) == [(0, offset) for offset in range(12)]
    assert Progress.of(table.metadata).positions == {0: 12}
    load_newest(catalog, identifier(TOPIC))
    found = read_pointer(platform.object_store(), platform.s3_bucket, identifier(TOPIC))
    assert found is not None
    assert found.location == table.metadata_location


def test_a_snapshot_that_another_process_forgot_is_no_conflict(
    platform: Settings,
    catalog: Interrupted,
    table: Table,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(archive_commit, "_PORTION", 1)
    for offset in range(3):
        commit(catalog, append(platform, table.refresh(), {0: offset}, {0: offset + 1}))
    stale, old = catalog.load_table(identifier(TOPIC)), [each.snapshot_id for each in table.refresh().snapshots()][:2]
    table.maintenance.expire_snapshots().by_ids(old).commit()
    monkeypatch.setattr(archive_commit, "superseded", lambda snapshots: old)
    caplog.set_level(logging.INFO, "truelog.archive")
    archive_commit._forget_old_snapshots(stale)
    assert "old snapshots stay until the next commit" in caplog.text
    assert rows(table) == [(0, offset) for offset in range(3)]


MINUTE = 60_000  # milliseconds


@settings_of(max_examples=200)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 7 * MINUTE)), max_size=30))
def test_forgotten_snapshots_have_no_file_of_their_own(history: list[tuple[bool, int]]) -> None:
    """A snapshot either appends a file, or replaces all files by one, as a compaction does, and forgets some."""
    files: set[int] = set()
    kept: dict[int, set[int]] = {}
    left: dict[int, Snapshot] = {}
    now = 0
    for number, (appends, pause) in enumerate(history):
        files, now = ({*files, number} if appends else {number}), now + pause
        kept[number] = files
        left[number] = snapshot(number, now, Operation.APPEND if appends else Operation.REPLACE)
        forgotten = archive_commit.superseded([*left.values()][::-1])
        assert all(now - left[each].timestamp_ms > 10 * MINUTE for each in forgotten)
        left = {n: without_parents(each, forgotten) for n, each in left.items() if n not in forgotten}
        assert set().union(*(kept[each] for each in left)) == set().union(*kept.values())
    followed = [number for number, (appends, _) in enumerate(history[1:]) if appends]
    assert [each for each in followed if each in left and now - left[each].timestamp_ms > 10 * MINUTE] == []


def without_parents(one: Snapshot, forgotten: list[int]) -> Snapshot:
    """The snapshot as pyiceberg leaves it when its parent has expired."""
    return one.model_copy(update={"parent_snapshot_id": None}) if one.parent_snapshot_id in forgotten else one


def snapshot(number: int, at: int, operation: Operation) -> Snapshot:
    found = {"snapshot-id": number, "sequence-number": number + 1, "timestamp-ms": at, "manifest-list": ""}
    found |= {"parent-snapshot-id": number - 1} if number else {}
    return Snapshot.model_validate({**found, "summary": {"operation": operation.value}})


def test_the_slower_of_two_archivers_is_refused(platform: Settings, catalog: Interrupted, table: Table) -> None:
    """Both archivers read the table before either one wrote. On its own, pyiceberg would append both batches."""
    winner, loser = append(platform, table, {0: 0}, {0: 5}), append(platform, table, {0: 0}, {0: 7})
    catalog.between = lambda: commit(catalog, winner)
    with pytest.raises(Stale):
        commit(catalog, loser)
    assert rows(table) == [(0, offset) for offset in range(5)]
    assert Progress.of(table.metadata).positions == {0: 5}


def test_a_change_that_leaves_positions_alone_is_no_conflict(
    platform: Settings, catalog: Interrupted, table: Table
) -> None:
    """After a compaction or an expiry, the commit is retried on the newer metadata."""

    def empty_snapshot() -> None:
        with table.refresh().transaction() as transaction, transaction.update_snapshot().fast_append():
            pass

    catalog.between = empty_snapshot
    commit(catalog, append(platform, table, {0: 0}, {0: 5}))
    assert rows(table) == [(0, offset) for offset in range(5)]
    assert len(table.metadata.snapshots) == 2


def test_a_range_without_records_advances_positions(platform: Settings, catalog: Interrupted, table: Table) -> None:
    """Transaction markers and compacted records leave holes; the archive must not wait for records there."""
    catalog.between = lambda: table.refresh().transaction().set_properties({"other": "1"}).commit_transaction()
    commit(catalog, Append(TOPIC, TOPIC_ID, {0: 0, 1: 0}, {0: 6, 1: 0}, {}, ()))
    progress = Progress.of(table.refresh().metadata)
    assert (progress.positions, progress.records) == ({0: 6, 1: 0}, {0: 0, 1: 0})


def test_lost_ranges_are_recorded(platform: Settings, catalog: Interrupted, table: Table) -> None:
    commit(catalog, Append(TOPIC, TOPIC_ID, {0: 0, 1: 0}, {0: 4, 1: 0}, {}, (), lost=True))
    commit(catalog, append(platform, table, {0: 4, 1: 0}, {0: 6, 1: 0}))
    commit(catalog, Append(TOPIC, TOPIC_ID, {0: 6, 1: 0}, {0: 9, 1: 1, 2: 3}, {}, (), lost=True))  # 2 is new
    progress = Progress.of(table.refresh().metadata)
    assert (progress.lost, progress.records[0]) == ({0: [(0, 4), (6, 9)], 1: [(0, 1)], 2: [(0, 3)]}, 2)


def test_a_recreated_topic_is_refused(platform: Settings, catalog: Interrupted, table: Table) -> None:
    other = Append(TOPIC, "second-life", {0: 0}, {0: 1}, {}, ())
    with pytest.raises(TopicRecreated, match="deleted and recreated"):
        commit(catalog, other)
    with pytest.raises(TopicRecreated):
        ensure_table(catalog, load_events()[TOPIC], "second-life", {0: 0})


def test_a_refused_commit_leaves_no_manifest_behind(platform: Settings, catalog: Interrupted, table: Table) -> None:
    commit(catalog, append(platform, table, {0: 0}, {0: 5}))
    winner, loser = append(platform, table, {0: 5}, {0: 6}), append(platform, table, {0: 5}, {0: 7})
    before = manifest_lists(platform, table)
    catalog.between = lambda: commit(catalog, winner)
    with pytest.raises(Stale):
        commit(catalog, loser)
    assert len(manifest_lists(platform, table)) == len(before) + 1  # the winner's manifest list


def test_every_column_is_kept_and_no_personal_data_is_in_the_metadata(
    platform: Settings, catalog: Interrupted, table: Table
) -> None:
    event = {"event_id": "e", "occurred_at": "2026-11-21T00:00:00Z", "visitor_id": "somebody", "url": "http://a/b"}
    batch = kafka_records(0, range(2), json.dumps(event).encode())
    [file] = written(platform, table.metadata, batch)
    commit(catalog, Append(TOPIC, TOPIC_ID, {0: 0}, {0: 2}, {0: 2}, (file.data_file,)))
    row = table.refresh().scan().to_arrow().to_pylist()[0]
    assert row["value"] == json.dumps(event).encode()
    assert (row["key"], row["headers"]) == (b"k", [{"key": "trace", "value": b"\x00\xff"}])
    assert (row["visitor_id"], row["invalid"], row["erased"]) == ("somebody", None, False)
    assert (row["broker_time"], row["log_day"]) == (MORNING, MORNING)
    bounded = {table.schema().find_column_name(i) for i in file.data_file.lower_bounds}
    assert bounded == {"partition", "offset", "broker_time", "log_day"}


def test_a_file_holds_one_log_day(platform: Settings, table: Table) -> None:
    short = platform.model_copy(update={"log_day_seconds": 10})
    day = int(MORNING.timestamp())
    files = written(short, table.metadata, kafka_records(0, range(25)))
    assert [(f.start, f.last_offset) for f in files] == [
        (Start(day, 0), 9),
        (Start(day + 10, 10), 19),
        (Start(day + 20, 20), 24),
    ]
