"""A topic that the archive has never begun is not invisible: lag, audit and the archive count from its registration."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from confluent_kafka import Producer, TopicPartition

from tests.beds.archived import drop_archive
from tests.command import truelog
from tests.deadline import deadline, until
from tests.deleted_records import delete_records
from tests.library.registered import forget, forget_rows
from truelog.archive import accept_loss
from truelog.archive.audit_evidence import run_audit
from truelog.archive.commit import Append, commit
from truelog.archive.table import archive_position, ensure_table, open_catalog
from truelog.control import event_registry, lease, topic_status
from truelog.control.application import ARCHIVE
from truelog.lag import poll as lag_poll
from truelog.lag.verdict import Limits, assess
from truelog.log import topics
from truelog.schema.event import Event, EventType, Topic
from truelog.storage.database import connect
from truelog.streaming.archive_topics import ArchiveTopics, Assessment
from truelog.support.errors import ServiceDown
from truelog.support.settings import KafkaUser, Settings

NAME = "never_begun"


class Text(Event):
    """An event with a text."""

    what: str


DECLARED = EventType(NAME, Text, Topic(None, (), 1, "7 days"))


@pytest.fixture
def topic(platform: Settings) -> Iterator[Settings]:
    """A platform with a topic of three records, whose event type is not registered yet."""
    topics.sync_topics(platform, {NAME: DECLARED})
    producer = Producer(platform.kafka())
    for _ in range(3):
        producer.produce(NAME, b"{}", partition=0)
    assert producer.flush(deadline(10)) == 0
    yield platform
    with open_catalog(platform) as catalog:
        drop_archive(catalog, NAME)
    if NAME in topics.existing_topics(topics.client(platform)):
        delete(platform)
    forget(platform, NAME)
    with connect(platform) as connection:
        topic_status.record_suspended(connection, ARCHIVE, {})


def delete(settings: Settings) -> None:
    broker = topics.client(settings, KafkaUser.ADMIN)
    broker.delete_topics([NAME])[NAME].result(deadline(30))

    def gone() -> None:
        if NAME in topics.existing_topics(topics.client(settings)):
            raise ServiceDown("the broker still has it")

    until(gone, 30, "the end of the topic")


def retention_drops(settings: Settings, below: int) -> None:
    delete_records(topics.client(settings, KafkaUser.ADMIN), TopicPartition(NAME, 0, below))


def verdict(settings: Settings) -> str:
    _, [poll] = lag_poll.poll_once(settings, topics.client(settings), [NAME], lag_poll.polled_archive)
    sample = poll.samples[NAME, 0]
    return assess([sample], sample.at, Limits()).verdict


def faults(settings: Settings) -> list[str]:
    return [each for each in run_audit(settings).faults if each.startswith(NAME)]


def assess_topics(settings: Settings) -> Assessment:
    """What the archive application does when it plans."""
    types = {NAME: event_registry.event_types(settings)[NAME]}
    with open_catalog(settings) as catalog:
        archived = ArchiveTopics(settings, catalog, types)

        def require_leader() -> None:
            if "leader" in archived.assess().bad.get(NAME, ""):
                raise ServiceDown("the topic is new")

        until(require_leader, 30, "the topic's leader")
        return archived.assess()


def test_what_retention_takes_after_the_registration_is_lost_and_must_be_accepted(topic: Settings) -> None:
    event_registry.register(topic, DECLARED)
    assert archive_position(topic).at(NAME, 0) == 0
    assert (verdict(topic), faults(topic)) == ("OK", [])
    retention_drops(topic, 2)
    assert verdict(topic) == "FALLING_OFF"
    assert faults(topic) == [f"{NAME} 0: archived up to 0, but the log begins at 2: the records between are lost"]

    assert "the log begins at 2, but the archive ends at 0" in assess_topics(topic).bad[NAME]
    running = lease.take_lease(topic, ARCHIVE)
    with connect(topic) as connection:
        topic_status.record_suspended(connection, ARCHIVE, {NAME: "lost records"})
    [lost] = accept_loss.accept_lost_ranges(topic)
    running.release()
    assert (lost.topic, lost.start, lost.end) == (NAME, 0, 2)
    assessed = assess_topics(topic)
    assert (dict(assessed.bad), assessed.begin.at(NAME, 0)) == ({}, 2)
    assert faults(topic) == []


def test_what_retention_took_before_the_registration_is_not_missed(topic: Settings) -> None:
    retention_drops(topic, 2)
    event_registry.register(topic, DECLARED)
    again = replace(DECLARED, topic=replace(DECLARED.topic, retention="8 days"))
    event_registry.register(topic, again)
    event_registry.begin_reading(topic, NAME)
    assert archive_position(topic).at(NAME, 0) == 2
    assert (verdict(topic), faults(topic)) == ("OK", [])
    assessed = assess_topics(topic)
    assert (dict(assessed.bad), assessed.begin.at(NAME, 0)) == ({}, 2)


def test_a_topic_that_is_gone_is_named_and_what_was_archived_of_it_is_audited(topic: Settings) -> None:
    event_registry.register(topic, DECLARED)
    [topic_id] = topics.topic_ids(topic, [NAME]).values()
    delete(topic)
    assert (run_audit(topic).gone, faults(topic)) == ((NAME,), [])
    assert f"{NAME}: Kafka has no such topic. The archive contains 0 records" in truelog("archive", "audit").stdout

    with open_catalog(topic) as catalog:
        ensure_table(catalog, DECLARED, topic_id, {0: 0})
        commit(catalog, Append(NAME, topic_id, {0: 0}, {0: 2}, {0: 0}, ()))
        assert (run_audit(topic, deep=True).gone, faults(topic)) == ((NAME,), [])
        commit(catalog, Append(NAME, topic_id, {0: 2}, {0: 3}, {0: 1}, ()))
    lost, hole = faults(topic)
    assert lost == f"{NAME} 0: the files contain 0 records, but 1 were committed"
    assert hole == f"{NAME} 0: [0, 3) is not archived, and the log does not explain why"


def test_the_copy_in_the_bucket_knows_where_a_topic_began(topic: Settings) -> None:
    retention_drops(topic, 2)
    event_registry.register(topic, DECLARED)
    with connect(topic) as connection:
        forget_rows(connection, NAME)
    assert event_registry.restore(topic) == [NAME]
    assert archive_position(topic).at(NAME, 0) == 2
