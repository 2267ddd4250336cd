"""A catalog from a backup is refused until `truelog archive adopt` has pointed it at the bucket's newest tables."""

import json
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field, replace

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from tests.beds.archived import drop_archive
from tests.command import answer, truelog
from tests.deadline import deadline, until
from tests.library.advisory_lock import require_waiting
from tests.library.archive_files import append
from tests.library.registered import forget
from tests.library.restored_catalog import restored
from truelog.archive import catalog_pointer, log_day
from truelog.archive.audit_evidence import incomplete_ranges
from truelog.archive.catalog_pointer import load_newest, read_pointer
from truelog.archive.commit import commit
from truelog.archive.log_day import Start
from truelog.archive.table import Progress, archived_positions, ensure_table, identifier, open_catalog
from truelog.control import event_registry, event_store, lease
from truelog.control.application import ARCHIVE
from truelog.dead_letters import replay as dead_letter_replay
from truelog.measures.registry import sql_functions
from truelog.schema import event_version
from truelog.schema.event_version import Cut, EventHistory
from truelog.schema.loading.events import load_events
from truelog.storage import bucket
from truelog.storage.database import connect
from truelog.storage.migration import migrate
from truelog.support.errors import CatalogBehind, ServiceDown
from truelog.support.settings import Settings

TOPIC, NAME = "page_view", identifier("page_view")
LONG_AGO, RECENTLY = 25, 3  # commits since the backup; the bucket keeps the metadata of the last 20
REFUSED = pytest.raises(CatalogBehind, match="truelog archive adopt")


@dataclass
class Archive:
    """The archive of one topic. A test commits to it, one record at a time."""

    settings: Settings
    catalog: Catalog
    topic_id: str = field(default_factory=lambda: uuid.uuid4().hex)

    @property
    def table(self) -> Table:
        return self.catalog.load_table(NAME)

    @property
    def offsets(self) -> list[int]:
        return sorted(self.table.scan(selected_fields=("offset",)).to_arrow()["offset"].to_pylist())

    @property
    def pointed(self) -> str:
        found = read_pointer(self.catalog.properties, self.settings.s3_bucket, NAME)
        assert found is not None
        return found.location

    def start(self) -> None:
        """Do what the archive application does at each start."""
        ensure_table(self.catalog, load_events()[TOPIC], self.topic_id, {0: 0})

    def commit(self, records: int) -> None:
        for _ in range(records):
            table = self.table
            begin = Progress.of(table.metadata).positions[0]
            made = append(self.settings, table, {0: begin}, {0: begin + 1})
            commit(self.catalog, replace(made, topic_id=self.topic_id))

    def adopt(self, *words: str) -> dict[str, object]:
        found = answer("archive", "adopt", NAME, *words)
        [table] = found["tables"]
        return dict(table)


@pytest.fixture
def archive(postgresql: Settings, s3: Settings) -> Iterator[Archive]:
    migrate(postgresql, sql_functions())
    with open_catalog(postgresql) as catalog:
        drop_archive(catalog, TOPIC)
        archive = Archive(postgresql, catalog)
        archive.start()
        archive.commit(2)
        yield archive


def test_event_versions_that_only_the_bucket_has_are_adopted_too(archive: Archive) -> None:
    settings, name = archive.settings, f"thing_{uuid.uuid4().hex[:8]}"
    declared = replace(load_events()[TOPIC], name=name)
    versions = {1: event_version.declaration_of(declared)}
    history = EventHistory(name, event_version.settings_of(declared), versions, (Cut("an-id", 0, 1, {}),))
    event_store.write_copies(settings, [history])
    assert answer("archive", "adopt", NAME, "--dry-run")["event_types"] == [name]
    shown = truelog("archive", "adopt", NAME)
    assert f"{name}: event versions came from the bucket" in shown.stdout
    with connect(settings) as connection:
        assert event_registry.histories(connection)[name] == history
    assert answer("archive", "adopt", NAME)["event_types"] == []
    forget(settings, name)


@pytest.mark.parametrize("lost", ["commits", "table"])
def test_dead_letters_are_not_replayed_before_the_catalog_is_adopted(archive: Archive, lost: str) -> None:
    """The restored database lacks the replays since the backup, so they would be sent again. No Kafka is reached."""
    types = {TOPIC: replace(load_events()[TOPIC], topic_id=archive.topic_id)}
    with restored(archive.settings):
        archive.commit(RECENTLY)
    if lost == "table":
        archive.catalog.drop_table(NAME)
    with REFUSED:
        dead_letter_replay.replay(archive.settings, types, [], "a test")
    with REFUSED:
        dead_letter_replay.preview(archive.settings, types, [])
    archive.adopt()
    assert dead_letter_replay.preview(archive.settings, types, []).sent == 0


@pytest.mark.parametrize("commits", [LONG_AGO, RECENTLY], ids=["metadata deleted", "metadata still there"])
def test_a_catalog_from_a_backup_is_refused_until_it_is_adopted(archive: Archive, commits: int) -> None:
    with restored(archive.settings):
        archive.commit(commits)
        newest = archive.pointed
    with REFUSED:
        archive.start()
    if commits == LONG_AGO:
        with pytest.raises(ServiceDown, match="truelog archive adopt"):
            archived_positions(archive.settings, [TOPIC])
    else:
        with REFUSED:
            archive.commit(1)
        with REFUSED:
            load_newest(archive.catalog, NAME)
    assert archive.pointed == newest

    assert archive.adopt("--dry-run")["changed"] is True
    with REFUSED:
        archive.start()
    assert archive.adopt()["newest"] == newest
    archive.start()
    archive.commit(2)
    assert archive.offsets == list(range(commits + 4))
    assert incomplete_ranges(archive.settings, [TOPIC]) == []
    assert archive.adopt()["changed"] is False


def test_a_catalog_that_lost_everything_is_adopted(archive: Archive) -> None:
    """A new table at the old name would hide the old records, and upkeep would remove their files."""
    with connect(archive.settings) as connection:
        connection.execute("ALTER SCHEMA iceberg RENAME TO lost")
        connection.execute("CREATE SCHEMA iceberg")
    try:
        with open_catalog(archive.settings) as catalog:
            lost = replace(archive, catalog=catalog)
            with REFUSED:
                lost.start()
        with connect(archive.settings) as connection:
            connection.execute("DROP SCHEMA iceberg CASCADE")
        assert archive.adopt()["before"] is None
        with open_catalog(archive.settings) as catalog:
            lost = replace(archive, catalog=catalog)
            lost.start()
            lost.commit(1)
            assert lost.offsets == [0, 1, 2]
    finally:
        with connect(archive.settings) as connection:
            connection.execute("DROP SCHEMA IF EXISTS iceberg CASCADE")
            connection.execute("ALTER SCHEMA lost RENAME TO iceberg")


def test_a_crash_between_a_commit_and_its_pointer_loses_nothing(archive: Archive) -> None:
    """The bucket has one more version than the pointer. It descends from the pointer, so it is adopted."""
    with restored(archive.settings):
        kept = _pointer_object(archive)
        archive.commit(1)
        _put(archive, kept)
    newer = archive.adopt()["newest"]
    assert newer == archive.pointed
    assert archive.offsets == [0, 1, 2]


def test_the_leftover_of_a_refused_commit_is_not_adopted(archive: Archive) -> None:
    """Two versions descend from one version. The pointer does not name the newer one, which was never committed."""
    base = _pointer_object(archive)
    with restored(archive.settings):
        archive.commit(1)
        committed = _pointer_object(archive)
    with restored(archive.settings):
        _put(archive, base)
        archive.commit(1)
    _put(archive, committed)
    assert archive.adopt()["newest"] == committed["metadata_location"] == archive.pointed


def test_a_version_with_a_missing_file_is_not_adopted(archive: Archive) -> None:
    with restored(archive.settings):
        archive.commit(1)
        last = max(task.file.file_path for task in archive.table.scan("offset = 2").plan_files())
    s3, key = bucket.s3_client(archive.settings), last.removeprefix(f"s3://{archive.settings.s3_bucket}/")
    s3.delete_object(Bucket=archive.settings.s3_bucket, Key=key)
    refused = truelog("archive", "adopt", NAME)
    assert refused.returncode != 0
    assert f"{last} is missing from the bucket" in refused.stderr
    assert archive.offsets == [0, 1]  # unchanged


def test_nothing_is_adopted_while_the_archive_is_running(archive: Archive) -> None:
    running = lease.take_lease(archive.settings, ARCHIVE)
    try:
        refused = truelog("archive", "adopt")
    finally:
        running.release()
    assert refused.returncode != 0
    assert "archive is already running" in refused.stderr


def test_log_days_that_the_database_lost_are_recorded_again(archive: Archive) -> None:
    """Otherwise a day would begin at the first record after the restore, and its partial would lack the others."""
    [file] = {task.file.partition[0] for task in archive.table.scan().plan_files()}
    day = int(file) // 1_000_000
    assert archive.adopt()["log_days"] == 1
    with connect(archive.settings) as connection:
        assert log_day.load_days(connection, {TOPIC: archive.topic_id}).at(TOPIC, 0) == (Start(day, 0),)
    assert archive.adopt()["log_days"] == 0


def test_a_process_that_lost_its_lock_does_not_move_the_pointer_back(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was suspended between reading the pointer and writing it, and newer commits moved the pointer meanwhile."""
    write, written = catalog_pointer._write, list[bool]()

    def overtaken(table: Table, name: str, replaces: catalog_pointer.Pointer | None) -> bool:
        if not written:
            written.append(True)
            other = replace(archive, catalog=open_catalog(archive.settings))
            monkeypatch.setattr(catalog_pointer, "_locked", lambda *_: nullcontext())
            other.commit(1)
        written.append(write(table, name, replaces))
        return written[-1]

    monkeypatch.setattr(catalog_pointer, "_write", overtaken)
    archive.commit(1)
    assert written == [True, True, False]  # the other process wrote; this process was refused, and found it done
    assert archive.pointed == archive.table.metadata_location
    assert archive.offsets == [0, 1, 2, 3]


def test_two_processes_do_not_move_the_pointer_at_the_same_time(archive: Archive) -> None:
    with open_catalog(archive.settings) as catalog, ThreadPoolExecutor(1) as pool:
        with catalog_pointer._locked(catalog.load_table(NAME), NAME):
            waiting = pool.submit(archive.commit, 1)
            until(lambda: require_waiting(archive.settings), 30, "the second process to wait")
            assert not waiting.done()
        waiting.result(deadline(30))


def _pointer_object(archive: Archive) -> dict[str, str]:
    found = bucket.s3_client(archive.settings).get_object(
        Bucket=archive.settings.s3_bucket, Key=f"_catalog/{NAME}.json"
    )
    return dict(json.loads(found["Body"].read()))


def _put(archive: Archive, content: dict[str, str]) -> None:
    bucket.s3_client(archive.settings).put_object(
        Bucket=archive.settings.s3_bucket, Key=f"_catalog/{NAME}.json", Body=json.dumps(content).encode()
    )
