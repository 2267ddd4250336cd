"""The archive suspends each kind of bad topic with its reason, archives the others, and takes a mended topic back."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from pydantic import Field as Declared
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from tests.deadline import deadline, until
from tests.deleted_records import delete_records
from truelog.archive import accept_loss, catalog_pointer
from truelog.archive.catalog_pointer import metadata_locations
from truelog.archive.table import ensure_table, identifier, open_catalog
from truelog.control import lease, topic_status
from truelog.control.application import ARCHIVE
from truelog.log import topics
from truelog.log.leader_epochs import Epochs, take_epochs
from truelog.log.positions import Positions
from truelog.measures.registry import sql_functions
from truelog.schema.event import Event, EventType, Topic
from truelog.storage.database import connect
from truelog.storage.migration import migrate
from truelog.streaming import archive_topics
from truelog.streaming.archive_topics import ArchiveTopics
from truelog.support.errors import ServiceDown
from truelog.support.settings import KafkaUser, Settings

GOOD, BAD = "aside_good", "aside_bad"


class Text(Event):
    """An event with a text."""

    what: str


class Number(Event):
    """The same event with a number in place of the text."""

    what: int = Declared(ge=0)


def event_type(name: str, model: type[Event] = Text) -> EventType:
    return EventType(name, model, Topic(None, (), 1, "7 days"))


@dataclass
class Case:
    """The archive of two topics; `spoil` and `mend` change the bad one."""

    settings: Settings
    broker: AdminClient
    archived: ArchiveTopics

    def delete(self) -> None:
        self.broker.delete_topics([BAD])[BAD].result()

    def create(self) -> None:
        topics.sync_topics(self.settings, {BAD: event_type(BAD)})

    def stamp(self, by: str) -> None:
        entry = ConfigEntry("message.timestamp.type", by, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, BAD, incremental_configs=[entry])
        self.broker.incremental_alter_configs([resource])[resource].result()

    def drop_table(self) -> None:
        with open_catalog(self.settings) as catalog:
            catalog.drop_table(identifier(BAD))

    def lose(self) -> None:
        producer = Producer(self.settings.kafka())
        for _ in range(3):
            producer.produce(BAD, b"{}", partition=0)
        assert producer.flush(deadline(10)) == 0
        delete_records(self.broker, TopicPartition(BAD, 0, 2))

    def accept(self) -> None:
        """While the archive application is running."""
        running = lease.take_lease(self.settings, ARCHIVE)
        try:
            [lost] = accept_loss.accept_lost_ranges(self.settings)
        finally:
            running.release()
        assert (lost.topic, lost.start, lost.end) == (BAD, 0, 2)

    def declare(self, model: type[Event]) -> None:
        self.archived._types = {**self.archived._types, BAD: event_type(BAD, model)}

    def set_property(self, topic: str, name: str) -> None:
        """Commit to a table of the archive, as upkeep does."""
        with open_catalog(self.settings) as catalog, catalog.load_table(identifier(topic)).transaction() as change:
            change.set_properties({name: "yes"})

    def location(self, topic: str) -> str:
        with connect(self.settings) as connection:
            return metadata_locations(connection, [identifier(topic)])[identifier(topic)]

    def restore(self, topic: str, location: str) -> None:
        """Let the catalog name this metadata, as a backup of PostgreSQL does."""
        query = "UPDATE iceberg.iceberg_tables SET metadata_location = %s WHERE table_name = %s"
        with connect(self.settings) as connection:
            connection.execute(query, (location, topic))

    def suspended(self) -> dict[str, str]:
        with connect(self.settings) as connection:
            found = topic_status.suspended_topics(connection)
        return {each.topic: each.reason for each in found if each.application == ARCHIVE}


@pytest.fixture
def case(platform: Settings) -> Iterator[Case]:
    migrate(platform, sql_functions())
    types = {name: event_type(name) for name in (GOOD, BAD)}
    topics.sync_topics(platform, types)
    broker = topics.client(platform, KafkaUser.ADMIN)
    with open_catalog(platform) as catalog:
        archived = ArchiveTopics(platform, catalog, types)
        until(lambda: _require_good(archived), 30, "the leaders of the new topics")
        yield Case(platform, broker, archived)
        for name in types:
            if catalog.table_exists(identifier(name)):
                catalog.drop_table(identifier(name))
    for name in types.keys() & topics.existing_topics(broker):
        broker.delete_topics([name])[name].result()
    with connect(platform) as connection:
        topic_status.record_suspended(connection, ARCHIVE, {})


def _require_good(archived: ArchiveTopics) -> None:
    if bad := archived.assess().bad:
        raise ServiceDown(str(bad))


Steps = tuple[Callable[[Case], object], ...]
CASES: dict[str, tuple[Steps, str, Steps]] = {
    "deleted": ((Case.delete,), f"Kafka has no topic {BAD}", (Case.create, Case.drop_table)),
    "created again": ((Case.delete, Case.create), "was deleted and recreated", (Case.drop_table,)),
    "CreateTime": (
        (lambda case: case.stamp("CreateTime"),),
        "timestamps from their producers' clocks",
        (lambda case: case.stamp("LogAppendTime"),),
    ),
    "lost range": ((Case.lose,), "the log begins at 2, but the archive ends at 0", (Case.accept,)),
    "impossible type": (
        (lambda case: case.declare(Number),),
        f"table log.{BAD} cannot take the declared columns",
        (lambda case: case.declare(Text),),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_bad_topic_is_suspended_alone_and_taken_back_when_it_is_mended(case: Case, name: str) -> None:
    spoil, reason, mend = CASES[name]
    for step in spoil:
        step(case)
    assert case.archived.changed().startswith(f"{BAD}: ")
    assessed = case.archived.assess()
    assert set(assessed.tables) == set(assessed.begin.offsets) == {GOOD}
    assert case.suspended().keys() == {BAD}
    assert reason in case.suspended()[BAD]
    assert case.archived.changed() == ""

    for step in mend:
        step(case)
    assert case.archived.changed() == f"{BAD}: can be archived"
    assert case.archived.assess().tables.keys() == {GOOD, BAD}
    assert case.suspended() == {}


def test_a_table_is_ensured_again_only_if_the_catalog_names_other_metadata(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    ensured: list[str] = []

    def noted(catalog: Catalog, event_type: EventType, *about: Any) -> Table:
        ensured.append(event_type.name)
        return ensure_table(catalog, event_type, *about)

    monkeypatch.setattr(archive_topics, "ensure_table", noted)
    assert (case.archived.changed(), ensured) == ("", [])
    case.set_property(GOOD, "compacted")
    assert (case.archived.changed(), ensured) == ("", [GOOD])
    assert case.archived.assess().tables[GOOD].properties["compacted"] == "yes"
    assert ensured == [GOOD]
    monkeypatch.setattr(catalog_pointer, "_LONGEST_KEPT", 0.0)
    assert (case.archived.changed(), sorted(ensured[1:])) == ("", [BAD, GOOD])


def test_a_catalog_that_was_restored_since_the_last_assessment_is_refused(case: Case) -> None:
    """The pointer in the bucket is compared with each metadata that the catalog names."""
    backup = case.location(BAD)
    case.set_property(BAD, "compacted")
    assert case.archived.changed() == ""
    newest = case.location(BAD)
    case.restore(BAD, backup)
    assert case.archived.changed().startswith(f"{BAD}: ")
    assert "truelog archive adopt" in case.suspended()[BAD]
    assert case.archived.changed() == "", "it stays refused"
    case.restore(BAD, newest)
    assert case.archived.changed() == f"{BAD}: can be archived"


def test_a_topic_may_be_deleted_while_it_is_assessed(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Positions] = []

    def deleted_before_it_is_asked(broker: AdminClient, positions: Positions) -> Epochs:
        if not asked:
            case.delete()
            until(lambda: _require_deleted(broker), 30, "the topic to be deleted")
        asked.append(positions)
        return take_epochs(broker, positions)

    monkeypatch.setattr(archive_topics, "take_epochs", deleted_before_it_is_asked)
    assert case.archived.assess().tables.keys() == {GOOD}
    assert [each.offsets.keys() for each in asked] == [{GOOD, BAD}, {GOOD}]


def _require_deleted(broker: AdminClient) -> None:
    if BAD in topics.existing_topics(broker):
        raise ServiceDown(f"{BAD} still exists")
