"""Topics on a real broker are created as declared, idempotently, and rejected if their log could not be trusted."""

from collections.abc import Iterator
from concurrent.futures import Future

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType
from confluent_kafka.cimpl import NewTopic

from tests.deadline import deadline
from tests.deleted_records import delete_records
from truelog.log import admin_client, topics
from truelog.log.positions import Positions
from truelog.schema.event import Event, EventType, Topic
from truelog.support.errors import ServiceDown, TopicRefused
from truelog.support.settings import Settings


class Visit(Event):
    """A visit."""

    user: str


def visits(partitions: int = 2, retention: str = "7 days", compacted: bool = False) -> dict[str, EventType]:
    topic = Topic("user", ("user",), partitions, retention, compacted)
    return {"visits": EventType("visits", Visit, topic)}


@pytest.fixture
def admin(kafka: Settings) -> Iterator[AdminClient]:
    """A client. The `visits` topic belongs to the test and is deleted afterwards."""
    client = AdminClient(kafka.kafka())
    yield client
    if "visits" in client.list_topics(timeout=deadline(10)).topics:
        client.delete_topics(["visits"])["visits"].result()


def configuration(admin: AdminClient, topic: str = "visits") -> dict[str, str]:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    found = admin.describe_configs([resource])[resource].result()
    names = ("message.timestamp.type", "cleanup.policy", "retention.ms", "min.compaction.lag.ms")
    return {name: found[name].value for name in names}


def create_by_hand(admin: AdminClient, partitions: int = 1, **config: str) -> None:
    new = NewTopic("visits", partitions, config={name.replace("_", "."): value for name, value in config.items()})
    admin.create_topics([new])["visits"].result()


def send(settings: Settings, *partitions: int) -> None:
    producer = Producer({**settings.kafka(), "acks": "all"})
    for partition in partitions:
        producer.produce("visits", b"{}", partition=partition)
    assert producer.flush(deadline(10)) == 0


def test_a_topic_is_created_as_declared(kafka: Settings, admin: AdminClient) -> None:
    topics.sync_topics(kafka, visits())
    assert topics.end_offsets(kafka, ["visits"]).offsets == {"visits": {0: 0, 1: 0}}
    assert configuration(admin) == {
        "message.timestamp.type": "LogAppendTime",
        "cleanup.policy": "delete",
        "retention.ms": "604800000",
        "min.compaction.lag.ms": "0",
    }


def test_applying_again_changes_nothing(kafka: Settings, admin: AdminClient) -> None:
    topics.sync_topics(kafka, visits())
    before = configuration(admin), topics.topic_ids(kafka, ["visits"])
    topics.sync_topics(kafka, visits())
    assert (configuration(admin), topics.topic_ids(kafka, ["visits"])) == before


def test_a_changed_declaration_is_applied(kafka: Settings, admin: AdminClient) -> None:
    topics.sync_topics(kafka, visits())
    send(kafka, 0)
    topics.sync_topics(kafka, visits(partitions=3, retention="2 hours", compacted=True))
    assert topics.end_offsets(kafka, ["visits"]).offsets == {"visits": {0: 1, 1: 0, 2: 0}}
    assert configuration(admin) == {
        "message.timestamp.type": "LogAppendTime",
        "cleanup.policy": "compact",
        "retention.ms": "7200000",
        "min.compaction.lag.ms": "604800000",
    }


def test_fewer_partitions_are_rejected_without_any_change(kafka: Settings, admin: AdminClient) -> None:
    topics.sync_topics(kafka, visits(partitions=2))
    before = configuration(admin)
    with pytest.raises(TopicRefused, match=r"Declare `partitions=2` in include/events/visits\.py"):
        topics.sync_topics(kafka, visits(partitions=1, retention="1 hour"))
    assert configuration(admin) == before


def test_a_topic_with_producer_timestamps_is_rejected(kafka: Settings, admin: AdminClient) -> None:
    create_by_hand(admin, message_timestamp_type="CreateTime")
    with pytest.raises(TopicRefused, match="its records carry timestamps from their producers' clocks"):
        topics.sync_topics(kafka, visits())
    with pytest.raises(TopicRefused, match=r"message\.timestamp\.type=CreateTime"):
        topics.require_log_append_time(kafka, ["visits"])
    assert configuration(admin)["message.timestamp.type"] == "CreateTime"


def test_a_declared_topic_is_accepted(kafka: Settings, admin: AdminClient) -> None:
    topics.sync_topics(kafka, visits())
    topics.require_log_append_time(kafka, visits())


def test_a_missing_topic_is_rejected(kafka: Settings) -> None:
    for function in (topics.end_offsets, topics.earliest_offsets, topics.topic_ids, topics.require_log_append_time):
        with pytest.raises(TopicRefused, match="Kafka has no topic nowhere; `truelog up` creates"):
            function(kafka, ["nowhere"])


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (KafkaError.UNKNOWN_LEADER_EPOCH, ServiceDown),  # the broker was killed and is starting again
        (KafkaError.NOT_LEADER_FOR_PARTITION, ServiceDown),
        (KafkaError._TRANSPORT, ServiceDown),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, TopicRefused),
    ],
)
def test_transient_and_permanent_errors_are_distinguished(
    kafka: Settings, code: int, expected: type[Exception]
) -> None:
    future: Future[None] = Future()
    future.set_exception(KafkaException(KafkaError(code)))
    with pytest.raises(expected):
        admin_client.result(topics.client(kafka), "visits", future)


def test_a_topic_that_was_created_again_has_another_id(kafka: Settings, admin: AdminClient) -> None:
    topics.sync_topics(kafka, visits())
    first = topics.topic_ids(kafka, ["visits"])
    admin.delete_topics(["visits"])["visits"].result()
    topics.sync_topics(kafka, visits())
    assert topics.topic_ids(kafka, ["visits"]).keys() == first.keys()
    assert topics.topic_ids(kafka, ["visits"]) != first


def test_end_offsets_and_the_offsets_that_retention_left(kafka: Settings, admin: AdminClient) -> None:
    topics.sync_topics(kafka, visits())
    send(kafka, 0, 0, 0, 1)
    ids = topics.topic_ids(kafka, ["visits"])
    assert topics.end_offsets(kafka, ["visits"]) == Positions({"visits": {0: 3, 1: 1}}, ids)
    assert topics.earliest_offsets(kafka, ["visits"]) == Positions({"visits": {0: 0, 1: 0}}, ids)
    _delete_before(admin, partition=0, offset=2)
    assert topics.earliest_offsets(kafka, ["visits"]).offsets == {"visits": {0: 2, 1: 0}}


def _delete_before(admin: AdminClient, partition: int, offset: int) -> None:
    delete_records(admin, TopicPartition("visits", partition, offset))
