"""An environment reads the event topics of another one by the platform's names, and nothing of it writes them."""

from functools import partial
from typing import Any

import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic, ResourceType

from tests.deadline import deadline, until
from tests.library.two_environments import VISITS, outside
from truelog.kafka.producer import open_producer
from truelog.lag import groups
from truelog.log import access, kafka_reader, leader_epochs, output_topic, range_reader, topics
from truelog.log.kafka_producer import KafkaSender
from truelog.log.positions import Positions, Range
from truelog.support.errors import ReadsOnly
from truelog.support.setting_groups.kafka import NAMESPACE, READS
from truelog.support.settings import KafkaUser, Settings

LIMITED = [user for user in KafkaUser if user is not KafkaUser.ADMIN]
DENIED = {KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED, KafkaError._MSG_TIMED_OUT}
OUTPUT = "view.cart.v1"


@pytest.fixture(scope="module")
def reader(red: Settings, blue: Settings) -> Settings:
    """`green` reads the events of `red`, and has none of its own."""
    reads = {"namespace": "green", "reads_namespace": "red", "reads_bucket": "a-bucket"}
    made = red.model_copy(update=reads)
    broker = topics.client(made, KafkaUser.ADMIN)
    access.create_users(broker, made)
    access.grant_reading(broker, made.names, VISITS)
    return made


def ends(settings: Settings) -> Positions:
    return topics.end_offsets(settings, ["visits"])


def strange(settings: Settings, user: KafkaUser) -> dict[str, Any]:
    """The options of a principal for a client that knows no environment."""
    found = {name: value for name, value in settings.kafka(user).items() if name not in (NAMESPACE, READS)}
    return found | {"log_level": 0}


def test_positions_and_records_are_those_of_the_other_environment(red: Settings, reader: Settings) -> None:
    assert ends(reader) == ends(red)
    assert ends(reader).ids == ends(red).ids
    whole = [Range("visits", 0, 0, 3)]
    [here], [there] = (range_reader.read(each.kafka(KafkaUser.READER), whole) for each in (reader, red))
    assert here == there
    assert {each.topic() for each in kafka_reader.messages(reader, "visits", 0, 0, 3)} == {"visits"}
    broker = topics.client(reader)
    assert topics.retention_seconds(broker, ["visits"]) == {"visits": 604_800.0}
    assert leader_epochs.take_epochs(broker, ends(reader)).keys() == {("visits", 0), ("visits", 1)}


def test_it_sees_the_event_topics_of_the_other_and_its_own_outputs(red: Settings, reader: Settings) -> None:
    for each in (red, reader):
        output_topic.create_topic(each, KafkaUser.RELAY, OUTPUT, {})
    output_topic.create_topic(red, KafkaUser.RELAY, "view.of_red.v1", {})
    assert topics.existing_topics(topics.client(reader)) == {"visits", OUTPUT}
    assert topics.existing_topics(topics.client(reader, KafkaUser.ADMIN)) == {"visits", OUTPUT}
    assert topics.existing_topics(outside(red)) >= {"green.view.cart.v1", "red.view.cart.v1", "red.visits"}


def test_its_groups_are_its_own_and_have_the_topics_that_it_reads(reader: Settings) -> None:
    publish = partial(groups.publish_groups, reader, topics.client(reader), {"archive": ends(reader)})
    until(publish, 30, "the coordinator of groups")  # of a new broker
    broker = outside(reader)
    found = {group.group_id for group in broker.list_consumer_groups().result().valid or []}
    assert "green.truelog.archive" in found
    assert "red.truelog.archive" not in found


@pytest.mark.parametrize("user", KafkaUser)
def test_its_producers_refuse_an_event_topic(reader: Settings, user: KafkaUser) -> None:
    producer = open_producer({**reader.kafka(user), "log_level": 0})
    with pytest.raises(ReadsOnly, match=r"red\.visits belongs to the environment red, and only that writes it"):
        producer.produce("visits", b"{}")
    with pytest.raises(ReadsOnly, match=r"the writing of events is a matter of the environment red.*Ask there"):
        KafkaSender(reader, ["visits"], user)


def test_its_administrator_changes_no_event_topic(reader: Settings) -> None:
    broker = topics.client(reader, KafkaUser.ADMIN)  # in a variable, because its requests end with the client
    changed = ConfigResource(ResourceType.TOPIC, "visits")
    attempts = (
        lambda: broker.create_topics([NewTopic("other", 1)]),
        lambda: broker.create_partitions([NewPartitions("visits", 5)]),
        lambda: broker.delete_topics(["visits"]),
        lambda: broker.incremental_alter_configs([changed]),
        lambda: topics.sync_topics(reader, VISITS),
    )
    for attempt in attempts:
        with pytest.raises(ReadsOnly):
            attempt()


@pytest.mark.parametrize("user", LIMITED)
def test_kafka_refuses_what_its_principals_write(red: Settings, reader: Settings, user: KafkaUser) -> None:
    """Also from a client that is not Truelog's."""
    before, errors = ends(red), list[KafkaError | None]()
    producer = Producer({**strange(reader, user), "acks": "all", "message.timeout.ms": 10_000})
    producer.produce("red.visits", b"{}", partition=0, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(deadline(15)) == 0
    [error] = errors
    assert error is not None
    assert error.code() in DENIED
    assert ends(red) == before


@pytest.mark.parametrize("topic", ["red.view.of_red.v1", "blue.visits"])
def test_kafka_lets_it_read_nothing_else(reader: Settings, blue: Settings, topic: str) -> None:
    broker = AdminClient(strange(reader, KafkaUser.READER))
    assert topic not in broker.list_topics(timeout=deadline(15)).topics
    assert "red.visits" in broker.list_topics(timeout=deadline(15)).topics
