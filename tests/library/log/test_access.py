"""Each Kafka principal may do its duty and nothing else, and a wrong password is reported as a wrong password."""

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from confluent_kafka.cimpl import NewTopic
from pydantic import SecretStr

from tests.deadline import deadline
from tests.deleted_records import deletions
from tests.house.tree import PROJECT, texts
from truelog.log import access, output_topic, topics
from truelog.log.kafka_producer import KafkaSender, OutgoingRecord
from truelog.schema.event import Topic
from truelog.schema.loading.events import load_events
from truelog.support.errors import ServiceDown
from truelog.support.setting_groups.namespace import Names
from truelog.support.settings import KafkaUser, Settings

EVENTS, INTERNAL = ("page_view", "search", "click"), ("dead_letter", "ticks", "claim", "customers", "erasure")
OUTPUTS = ("view.cart.v1", access.RELAY_PLACES)
OTHERS = ("__consumer_offsets", "__transaction_state")
WRONG = SecretStr("0" * 48)
DENIED = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError._NOENT,  # the principal does not even see the topic
}
MAY_WRITE = {
    KafkaUser.COLLECTOR: {*EVENTS, "dead_letter"},
    KafkaUser.CONNECT: {"customers"},
    KafkaUser.ERASER: {"erasure"},
    KafkaUser.PRODUCER: {*EVENTS},
    KafkaUser.TICKS: {"ticks"},
    KafkaUser.READER: set[str](),
    KafkaUser.RELAY: {*EVENTS, "claim", *OUTPUTS},
}


def writes(settings: Settings, user: KafkaUser, topic: str) -> bool:
    """Whether the principal may write, as an idempotent producer. A principal that may write nothing gets no id."""
    errors: list[KafkaError | None] = []
    settled = {"topic.metadata.propagation.max.ms": 0}  # else a producer waits 30 s for a topic that is missing
    config = {"acks": "all", "enable.idempotence": True, "log_level": 0, **settled}
    producer = Producer({**settings.kafka(user), **config})
    try:
        producer.produce(topic, b"{}", b"key", on_delivery=lambda error, _: errors.append(error))
        assert producer.flush(deadline(15)) == 0
        [error] = errors
    except KafkaException as failed:
        error = failed.args[0]
    # Until a group has needed it, the broker has no topic of positions, and the collector may know which topics exist.
    missing = {KafkaError.UNKNOWN_TOPIC_OR_PART} if topic in OTHERS else set[int]()
    refused = DENIED | missing | {KafkaError._PURGE_QUEUE, KafkaError.INVALID_REQUEST}
    assert error is None or error.code() in refused, error
    return error is None


def reads(settings: Settings, user: KafkaUser, topic: str) -> bool:
    config = {**settings.kafka(user), "group.id": "truelog-test", "auto.offset.reset": "earliest", "log_level": 0}
    consumer = Consumer(config | {"enable.partition.eof": True, "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    message = consumer.poll(deadline(15))
    consumer.close()
    assert message is not None
    error = message.error()
    assert error is None or error.code() in {KafkaError._PARTITION_EOF, *DENIED}, error
    return error is None or error.code() == KafkaError._PARTITION_EOF


@pytest.mark.parametrize("user", MAY_WRITE)
def test_a_principal_writes_only_its_topics(kafka: Settings, user: KafkaUser) -> None:
    for output in OUTPUTS:
        output_topic.create_topic(kafka, KafkaUser.RELAY, output, {})
    assert {topic for topic in (*EVENTS, *INTERNAL, *OUTPUTS, *OTHERS) if writes(kafka, user, topic)} == MAY_WRITE[user]


@pytest.mark.parametrize("user", MAY_WRITE)
def test_only_the_reader_reads(kafka: Settings, user: KafkaUser) -> None:
    assert {reads(kafka, user, topic) for topic in (*EVENTS, *INTERNAL)} == {user is KafkaUser.READER}


RETENTION = ConfigEntry("retention.ms", "1", incremental_operation=AlterConfigOpType.SET)
PAGE_VIEWS = ConfigResource(ResourceType.TOPIC, "page_view", incremental_configs=[RETENTION])
CHANGES: dict[str, Callable[[AdminClient], dict[Any, Any]]] = {
    "creates a topic": lambda it: it.create_topics([NewTopic("mine", 1)]),
    "deletes a topic": lambda it: it.delete_topics(["page_view"]),
    "deletes records": lambda it: dict(deletions(it, TopicPartition("page_view", 0, 1))),
    "changes rules": lambda it: it.create_acls(access._writing("mine", Topic("key", (), 1, "7 days"))),
    "changes a topic": lambda it: it.incremental_alter_configs([PAGE_VIEWS]),
}


@pytest.mark.parametrize("user", MAY_WRITE)
@pytest.mark.parametrize("change", CHANGES)
def test_no_principal_administers(kafka: Settings, user: KafkaUser, change: str) -> None:
    broker = topics.client(kafka, user)
    for future in CHANGES[change](broker).values():
        refused = future.exception()
        assert isinstance(refused, KafkaException)
        assert refused.args[0].code() in DENIED


@pytest.mark.parametrize("user", MAY_WRITE)
def test_only_an_erasure_deletes_an_output(kafka: Settings, user: KafkaUser) -> None:
    output_topic.create_topic(kafka, KafkaUser.RELAY, OUTPUTS[0], {})
    broker = topics.client(kafka, user)  # a client that nothing keeps ends its requests
    [future] = broker.delete_topics([OUTPUTS[0]]).values()
    refused = future.exception()
    assert (refused is None) == (user is KafkaUser.ERASER), refused


def test_set_up_changes_nothing_the_second_time(kafka: Settings) -> None:
    broker = topics.client(kafka, KafkaUser.ADMIN)
    before = access._existing(broker)
    access.create_users(broker, kafka)
    topics.sync_topics(kafka, load_events())
    assert access._existing(broker) == before


class _WithoutAuthorizer:
    """A broker that answers as one without an authorizer."""

    def describe_acls(self, *_: object, **__: object) -> "Future[list[object]]":
        answer = Future[list[object]]()
        answer.set_exception(KafkaException(KafkaError(KafkaError.SECURITY_DISABLED)))
        return answer


def test_a_broker_without_an_authorizer_needs_no_rules(caplog: pytest.LogCaptureFixture) -> None:
    broker: Any = _WithoutAuthorizer()
    access.grant_writing(broker, Names(), {"page_view": load_events()["page_view"].topic})
    assert "Kafka has no authorizer" in caplog.text


def test_a_platform_of_an_earlier_release_has_only_the_main_principal(kafka: Settings) -> None:
    names = [user.password_setting for user in KafkaUser if user is not KafkaUser.ADMIN]
    earlier = kafka.model_copy(update=dict.fromkeys(names, SecretStr("")))
    assert {earlier.kafka(user)["sasl.username"] for user in KafkaUser} == {"truelog"}


def test_a_wrong_password_is_reported_as_such(kafka: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics, "_TIMEOUT", 2.0)  # all of it passes
    wrong = kafka.model_copy(update={"kafka_reader_password": WRONG})
    with pytest.raises(ServiceDown, match=r"Authentication failed.*TRUELOG_KAFKA"):
        topics.existing_topics(topics.client(wrong))
    with pytest.raises(ServiceDown, match=r"Authentication failed.*TRUELOG_KAFKA"):
        topics.end_offsets(wrong, ["page_view"])


def test_a_sender_with_a_wrong_password_does_not_wait_for_the_time_limit(kafka: Settings) -> None:
    wrong = kafka.model_copy(update={"kafka_producer_password": WRONG})
    with pytest.raises(ServiceDown, match="Authentication failed"), KafkaSender(wrong, ["page_view"]) as sender:
        sender.send(OutgoingRecord("page_view", "k", b"{}"))


def test_only_set_up_uses_the_superuser() -> None:
    using = {
        name
        for name, text in texts(PROJECT, "*.py")
        if name.startswith(("include/", "plugins/", "dags/", "spark_apps/"))
        and (".kafka()" in text or "KafkaUser.ADMIN" in text)
    }
    assert using == {
        "include/runtime/chart.py",  # gives no pod its password
        "include/runtime/credentials.py",  # makes no password for it here
        "include/runtime/foreign_names.py",
        "include/runtime/kafka.py",
        "include/runtime/namespace.py",
        "include/truelog/control/foreign_events.py",  # lets the reader read the topics of another environment
        "include/truelog/doctor/kafka.py",  # signs in as each principal
        "include/truelog/forgetting/request.py",  # sees topics of another environment that the reader may not read
        "include/truelog/log/topics.py",
        "include/truelog/maintenance/accept_cut.py",  # appends records of all topics again
        "include/truelog/support/setting_groups/kafka.py",
    }
