"""A process that asks for the archive's positions again and again reads a table only if the catalog has changed."""

import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from tests.beds.archived import drop_archive
from tests.library.registered import registered
from truelog.archive import catalog_pointer
from truelog.archive import table as archive_table
from truelog.archive.catalog_pointer import load_table, metadata_locations
from truelog.archive.commit import Append, commit
from truelog.archive.table import (
    ArchivePosition,
    Progress,
    archive_position,
    archived_positions,
    ensure_table,
    identifier,
    open_catalog,
)
from truelog.log.positions import Positions
from truelog.measures.registry import sql_functions
from truelog.schema.loading.events import load_events
from truelog.storage.database import connect
from truelog.storage.migration import migrate
from truelog.support.errors import ServiceDown
from truelog.support.settings import Settings

TOPIC, OTHER = "page_view", "click"
DELETED = 25  # commits; the bucket keeps the metadata of the last 20


@dataclass
class Archive:
    """The archive of two topics, and what a process that polls its position has read of it."""

    settings: Settings
    catalog: Catalog
    position: ArchivePosition = field(default_factory=ArchivePosition)
    read: list[str] = field(default_factory=list)  # the tables, in the order of their reading
    topic_id: str = field(default_factory=lambda: uuid.uuid4().hex)

    def begin(self, topic: str, topic_id: str) -> None:
        ensure_table(self.catalog, load_events()[topic], topic_id, {0: 0})

    def commit(self, topic: str, commits: int = 1) -> None:
        """Archive a record by each commit."""
        for _ in range(commits):
            found = Progress.of(self.catalog.load_table(identifier(topic)).metadata)
            at = found.positions.get(0, 0)
            commit(self.catalog, Append(topic, found.topic_id, {0: at}, {0: at + 1}, {0: 1}, ()))

    def poll(self) -> Positions:
        """The position of the archive. It is what a process finds that has read nothing before."""
        found = self.position.load(self.settings)
        polled = [*self.read]
        assert found == archive_position(self.settings)
        self.read[:] = polled
        return found

    def reads(self) -> list[str]:
        """The tables that were read since the last call."""
        read = [*self.read]
        self.read.clear()
        return read

    def location(self, topic: str) -> str:
        with connect(self.settings) as connection:
            return metadata_locations(connection, [identifier(topic)])[identifier(topic)]

    def restore(self, topic: str, location: str) -> None:
        """Let the catalog name this metadata, as a backup of PostgreSQL does."""
        with connect(self.settings) as connection:
            connection.execute(
                "UPDATE iceberg.iceberg_tables SET metadata_location = %s WHERE table_name = %s", (location, topic)
            )


@pytest.fixture
def archive(postgresql: Settings, s3: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[Archive]:
    migrate(postgresql, sql_functions())
    with open_catalog(postgresql) as catalog:
        archive = Archive(postgresql, catalog)

        def noted(catalog: Catalog, name: str) -> Table:
            archive.read.append(name.removeprefix("log."))
            return load_table(catalog, name)

        for topic in (TOPIC, OTHER):
            drop_archive(catalog, topic)
            archive.begin(topic, archive.topic_id)
            archive.commit(topic)
        monkeypatch.setattr(archive_table, "load_table", noted)
        with registered(postgresql, archive.topic_id):
            yield archive
        for topic in (TOPIC, OTHER):
            drop_archive(catalog, topic)


def test_a_table_is_read_again_only_if_the_catalog_names_other_metadata(archive: Archive) -> None:
    assert (archive.poll().at(TOPIC, 0), sorted(archive.reads())) == (1, [OTHER, TOPIC])
    assert (archive.poll().at(TOPIC, 0), archive.reads()) == (1, [])
    archive.commit(TOPIC)
    archive.reads()
    assert (archive.poll().at(TOPIC, 0), archive.reads()) == (2, [TOPIC])
    with archive.catalog.load_table(identifier(OTHER)).transaction() as change:
        change.set_properties({"compacted": "yes"})  # what is committed without new positions is read, too
    assert (archive.poll().at(OTHER, 0), archive.reads()) == (1, [OTHER])
    assert (archive.poll().at(OTHER, 0), archive.reads()) == (1, [])


def test_a_topic_that_was_created_again_has_the_positions_of_its_new_table(archive: Archive) -> None:
    archive.commit(TOPIC, 3)
    assert archive.poll().ids[TOPIC] == archive.topic_id
    drop_archive(archive.catalog, TOPIC)
    assert archive.poll().at(TOPIC, 0) == 0, "without a table, the archive is where the topic began"
    archive.begin(TOPIC, "second-life")
    archive.commit(TOPIC)
    found = archive.poll()
    assert (found.ids[TOPIC], found.at(TOPIC, 0)) == ("second-life", 1)


@pytest.mark.parametrize("commits", [3, DELETED])
def test_a_catalog_that_was_restored_is_never_answered_from_what_was_read_before(
    archive: Archive, commits: int
) -> None:
    archive.poll()
    backup = archive.location(TOPIC)
    archive.commit(TOPIC, commits)
    assert archive.poll().at(TOPIC, 0) == 1 + commits
    newest = archive.location(TOPIC)
    archive.restore(TOPIC, backup)
    if commits < DELETED:
        assert archive.poll().at(TOPIC, 0) == 1
        return
    for _ in range(2):  # the first failure leaves nothing that could answer the second poll
        with pytest.raises(ServiceDown, match="names metadata that was deleted"):
            archive.position.load(archive.settings)
    archive.restore(TOPIC, newest)  # a table without metadata cannot be dropped


def test_a_lost_metadata_file_is_noticed_after_some_minutes(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    archive.poll()
    table = archive.catalog.load_table(identifier(TOPIC))
    with table.io.new_input(table.metadata_location).open() as file:
        content = file.read()
    table.io.delete(table.metadata_location)
    assert archive.position.load(archive.settings).at(TOPIC, 0) == 1
    with monkeypatch.context() as later:
        later.setattr(catalog_pointer, "_LONGEST_KEPT", 0.0)
        with pytest.raises(ServiceDown, match="names metadata that was deleted"):
            archive.position.load(archive.settings)
    with table.io.new_output(table.metadata_location).create() as found_again:
        found_again.write(content)


def test_the_positions_of_a_job_come_from_the_tables(archive: Archive) -> None:
    archive.poll()
    archive.reads()
    assert archived_positions(archive.settings, [TOPIC, "never_archived"]).offsets == {TOPIC: {0: 1}}
    assert archive.reads() == [TOPIC, "never_archived"]
