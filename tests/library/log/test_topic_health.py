"""Bad topics on a real broker do not hide the good ones, and a guard refuses what was read from a re-created topic."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.deadline import deadline, until
from truelog.log import leader_epochs, topics
from truelog.log.positions import Positions
from truelog.log.topic_health import TopicGuard, examine_topics
from truelog.support.errors import ServiceDown, TopicRecreated, TopicRefused
from truelog.support.settings import KafkaUser, Settings

GOOD, BY_PRODUCERS, MISSING = "health_good", "health_by_producers", "health_missing"


def create(broker: AdminClient, name: str, **config: str) -> None:
    broker.create_topics([NewTopic(name, 2, config=config)])[name].result()


def wait_for(broker: AdminClient, *names: str) -> None:
    """Wait until the broker knows exactly these of the test's topics."""

    def known() -> None:
        if {GOOD, BY_PRODUCERS} & topics.existing_topics(broker) != {*names}:
            raise ServiceDown("the broker's metadata is not current")

    until(known, 10, "topics")


def delete(broker: AdminClient, name: str) -> None:
    broker.delete_topics([name])[name].result()


@pytest.fixture
def broker(kafka: Settings) -> Iterator[AdminClient]:
    client = topics.client(kafka, KafkaUser.ADMIN)
    create(client, GOOD)
    create(client, BY_PRODUCERS, **{"message.timestamp.type": "CreateTime"})
    wait_for(client, GOOD, BY_PRODUCERS)
    yield client
    for name in {GOOD, BY_PRODUCERS} & topics.existing_topics(client):
        delete(client, name)


def test_each_bad_topic_has_its_reason_and_the_others_are_read(broker: AdminClient) -> None:
    found = examine_topics(broker, [GOOD, BY_PRODUCERS, MISSING], {})
    assert found.earliest.offsets == {GOOD: {0: 0, 1: 0}}
    assert found.earliest.ids.keys() == {GOOD}
    assert found.bad.keys() == {BY_PRODUCERS, MISSING}
    assert "message.timestamp.type=CreateTime" in found.bad[BY_PRODUCERS]
    assert f"Kafka has no topic {MISSING}" in found.bad[MISSING]


def test_a_topic_with_a_partition_without_a_leader_is_bad(broker: AdminClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """The only broker of a test leads every partition, so its answer is changed."""
    answered, why = topics.begins_by_partition, f"{GOOD} 1 has no leader"
    monkeypatch.setattr(
        topics, "begins_by_partition", lambda *given: replace(answered(*given), unknown={(GOOD, 1): why})
    )
    found = examine_topics(broker, [GOOD], {})
    assert (found.earliest.offsets, found.bad) == ({}, {GOOD: why})


def test_a_broker_that_does_not_answer_makes_no_topic_bad(kafka: Settings) -> None:
    down = topics.client(kafka.model_copy(update={"kafka_bootstrap": "127.0.0.1:1"}))
    with pytest.raises(ServiceDown):
        examine_topics(down, [GOOD], {})


def test_a_guard_refuses_a_topic_that_was_created_again_or_deleted(kafka: Settings, broker: AdminClient) -> None:
    guard, read = TopicGuard(kafka), topics.ends(broker, [GOOD])
    guard.require_unchanged(read)
    delete(broker, GOOD)
    wait_for(broker, BY_PRODUCERS)
    with pytest.raises(TopicRefused, match=f"no topic {GOOD}"):
        guard.require_unchanged(read)
    create(broker, GOOD)
    wait_for(broker, GOOD, BY_PRODUCERS)
    with pytest.raises(TopicRecreated, match=f"{GOOD} was deleted and created again"):
        guard.require_unchanged(read)


def test_a_topic_with_another_id_than_its_registered_event_type_is_bad(broker: AdminClient) -> None:
    ids = topics.ends(broker, [GOOD]).ids
    assert examine_topics(broker, [GOOD], ids).bad == {}
    assert "not registered for the new topic" in examine_topics(broker, [GOOD], {GOOD: "former"}).bad[GOOD]


def test_an_epoch_that_the_broker_does_not_know_is_not_taken_for_an_intact_log(
    kafka: Settings, broker: AdminClient
) -> None:
    """A broker whose storage was restored from an older copy has had fewer leaders than its readers have seen."""
    read = topics.ends(broker, [GOOD])
    with pytest.raises(ServiceDown, match="does not know where the reader's leader epoch ends"):
        leader_epochs.require_intact(kafka, read, {(GOOD, 0): 99}, {(GOOD, 0): 0})


def test_the_records_below_a_position_prove_that_the_log_is_intact(
    kafka: Settings, broker: AdminClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leader_epochs, "_TIMEOUT_SECONDS", deadline(5))
    producer = Producer({**kafka.kafka(), "acks": "all"})
    for _ in range(15):
        producer.produce(GOOD, b"{}", partition=1)
    assert producer.flush(deadline(10)) == 0
    read = Positions({GOOD: {0: 0, 1: 12}}, topics.ends(broker, [GOOD]).ids)
    now = {(GOOD, 0): 1, (GOOD, 1): 1}
    leader_epochs.require_intact(kafka, read, {(GOOD, 0): 0, (GOOD, 1): 0}, now)
    # Before every epoch. The client then asks for no end of an epoch, so it is silent.
    with pytest.raises(ServiceDown, match=f"{GOOD} 1: the record at 2, before the position 12, has the leader epoch 0"):
        leader_epochs.require_intact(kafka, read, {(GOOD, 0): -1, (GOOD, 1): -1}, now)
