"""Two environments on one Kafka: the clients of each see their own topics, by names without a namespace."""

from functools import partial
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tests.deadline import deadline, until
from tests.library.two_environments import Visit, outside
from truelog.kafka.admin_client import REFUSED, NamedAdminClient
from truelog.kafka.consumer import Consumer
from truelog.kafka.producer import open_producer
from truelog.lag import groups, unread
from truelog.log import access, kafka_reader, leader_epochs, output_topic, range_reader, topics
from truelog.log.positions import Positions, Range
from truelog.schema.event import EventType, Topic
from truelog.support.errors import TopicRefused
from truelog.support.settings import KafkaUser, Settings

# Methods of a consumer that neither take nor return the name of a topic.
WITHOUT_TOPICS = {
    "close",
    "cluster_id",
    "consumer_group_metadata",
    "memberid",
    "set_sasl_credentials",
    "unassign",
    "unsubscribe",
}
# Methods of the administration about the whole cluster, or with Kafka's names of principals and rules.
OF_THE_CLUSTER = {
    "alter_user_scram_credentials",
    "cluster_id",
    "create_acls",
    "delete_acls",
    "describe_acls",
    "describe_cluster",
    "describe_user_scram_credentials",
    "poll",
    "set_sasl_credentials",
}
OUTPUT = "view.cart.v1"


def ends(settings: Settings) -> Positions:
    return topics.end_offsets(settings, ["visits"])


def test_each_environment_has_a_topic_of_its_own(red: Settings, blue: Settings) -> None:
    assert ends(red).offsets == {"visits": {0: 3, 1: 0}}
    assert ends(blue).offsets == {"visits": {0: 1, 1: 0}}
    assert ends(red).ids["visits"] != ends(blue).ids["visits"]
    assert {topic for each in (red, blue) for topic in topics.existing_topics(topics.client(each))} == {"visits"}
    assert topics.existing_topics(outside(red)) >= {"red.visits", "blue.visits"}
    assert "visits" not in topics.existing_topics(outside(red))


def test_its_records_have_the_name_of_their_event_type(red: Settings, blue: Settings) -> None:
    for each in (red, blue):
        end = ends(each).at("visits", 0)
        [batch] = range_reader.read(each.kafka(KafkaUser.READER), [Range("visits", 0, 0, end)])
        assert set(zip(batch["topic"].to_pylist(), batch["value"].to_pylist(), strict=True)) == {
            ("visits", each.namespace.encode())
        }
        assert {m.topic() for m in kafka_reader.messages(each, "visits", 0, 0, end)} == {"visits"}


def test_its_topics_are_examined_under_their_names(red: Settings, blue: Settings) -> None:
    for each in (red, blue):
        broker, positions = topics.client(each), ends(each)
        assert topics.retention_seconds(broker, ["visits"]) == {"visits": 604_800.0}
        assert topics.partition_counts(broker, ["visits", "other"]) == {"visits": 2}
        epochs = leader_epochs.take_epochs(broker, positions)
        assert epochs.keys() == {("visits", 0), ("visits", 1)}
        assert list(leader_epochs.find_cuts(each, positions, epochs)) == []
        with pytest.raises(TopicRefused, match="no topic other"):
            topics.ends(broker, ["other"])


def test_a_declaration_changes_only_its_own_topic(red: Settings, blue: Settings) -> None:
    larger = {"visits": EventType("visits", Visit, Topic("user", ("user",), 3, "1 day"))}
    topics.sync_topics(blue, larger)
    assert topics.retention_seconds(topics.client(blue), ["visits"]) == {"visits": 86_400.0}
    assert topics.retention_seconds(topics.client(red), ["visits"]) == {"visits": 604_800.0}
    assert (len(ends(blue).partitions()), len(ends(red).partitions())) == (3, 2)


def test_lag_is_of_its_own_records(red: Settings, blue: Settings) -> None:
    for each, unread_records in ((red, 3), (blue, 1)):
        start = Positions({"visits": {0: 0}}, ends(each).ids)
        found = unread.lags(each, {"view": start}, ends(each))["view"]
        assert found["visits", 0].events == unread_records


def test_groups_are_of_the_environment(red: Settings, blue: Settings) -> None:
    for each in (red, blue):
        publish = partial(groups.publish_groups, each, topics.client(each), {"archive": ends(each)})
        until(publish, 30, "the coordinator of groups")  # of a new broker
    broker = outside(red)  # in a variable, because its requests end with the client
    found = {group.group_id for group in broker.list_consumer_groups().result().valid or []}
    assert found >= {"red.truelog.archive", "blue.truelog.archive"}
    assert "truelog.archive" not in found


def test_a_deleted_output_is_its_own(red: Settings, blue: Settings) -> None:
    for each in (red, blue):
        output_topic.create_topic(each, KafkaUser.RELAY, OUTPUT, {"retention.ms": "1000"})
        output_topic.create_topic(each, KafkaUser.RELAY, OUTPUT, {"retention.ms": "2000"})  # which changes it
    output_topic.delete_topics(red, KafkaUser.ERASER, [OUTPUT])
    assert OUTPUT not in topics.existing_topics(topics.client(red))
    assert topics.retention_seconds(topics.client(blue), [OUTPUT]) == {OUTPUT: 2.0}


@pytest.fixture
def transactional(red: Settings, blue: Settings) -> dict[str, Any]:
    """A producer of each environment, with the same transactional id. The last one has not fenced the first."""
    made = {}
    for each in (red, blue):
        config = {**each.kafka(KafkaUser.PRODUCER), "transactional.id": access.REPLAY_TRANSACTIONS, "log_level": 0}
        made[each.namespace] = open_producer(config)
        made[each.namespace].init_transactions(deadline(30))
    return made


def test_no_environment_fences_the_producer_of_another(transactional: dict[str, Any]) -> None:
    for producer in transactional.values():
        producer.begin_transaction()
        producer.produce("visits", b"", partition=1)
        producer.commit_transaction(deadline(30))


def test_one_environment_still_fences_its_own(red: Settings, transactional: dict[str, Any]) -> None:
    again = {**red.kafka(KafkaUser.PRODUCER), "transactional.id": access.REPLAY_TRANSACTIONS, "log_level": 0}
    open_producer(again).init_transactions(deadline(30))
    transactional["red"].begin_transaction()
    transactional["red"].produce("visits", b"", partition=1)
    with pytest.raises(KafkaException):
        transactional["red"].commit_transaction(deadline(30))


@pytest.mark.parametrize("client", [confluent_kafka.Consumer, confluent_kafka.Producer])
def test_a_client_that_does_not_know_namespaces_refuses_the_options(red: Settings, client: Any) -> None:
    with pytest.raises(KafkaException, match="No such configuration property"):
        client({**red.kafka(), "group.id": "any"})


def test_each_method_of_a_client_knows_the_namespace_or_is_refused(red: Settings) -> None:
    methods = {name for name in dir(confluent_kafka.Consumer) if not name.startswith("_")}
    assert methods - vars(Consumer).keys() <= WITHOUT_TOPICS
    methods = {name for name in dir(AdminClient) if not name.startswith("_")}
    assert methods - vars(NamedAdminClient).keys() - {*REFUSED} <= OF_THE_CLUSTER
    with pytest.raises(NotImplementedError, match="does not know the namespace"):
        topics.client(red).list_consumer_groups()
