"""The principals of one environment have no rights in another, and each rule names its own environment."""

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from tests.deadline import deadline, until
from tests.library.two_environments import outside
from truelog.log import access, topics
from truelog.support.errors import ServiceDown
from truelog.support.setting_groups.kafka import NAMESPACE
from truelog.support.settings import KafkaUser, Settings

DENIED = {KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED}
STARTING = {KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_NOT_AVAILABLE}
LIMITED = [user for user in KafkaUser if user is not KafkaUser.ADMIN]


def strange(settings: Settings, user: KafkaUser) -> dict[str, Any]:
    """The options of a principal for a client that names other topics than its own."""
    found = {name: value for name, value in settings.kafka(user).items() if name != NAMESPACE}
    return found | {"log_level": 0}


@pytest.mark.parametrize("user", LIMITED)
def test_no_principal_writes_to_another_environment(red: Settings, blue: Settings, user: KafkaUser) -> None:
    errors: list[KafkaError | None] = []
    producer = Producer({**strange(blue, user), "acks": "all", "message.timeout.ms": 10_000})
    producer.produce("red.visits", b"{}", partition=0, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(deadline(15)) == 0
    [error] = errors
    assert error is not None
    assert error.code() in DENIED | {KafkaError._MSG_TIMED_OUT}
    assert topics.end_offsets(red, ["visits"]).at("visits", 0) == 3


@pytest.mark.parametrize("user", LIMITED)
def test_no_principal_reads_another_environment(red: Settings, blue: Settings, user: KafkaUser) -> None:
    """The right to read a topic contains the right to see it."""
    assert red.namespace == "red"  # its topic exists
    broker = AdminClient(strange(blue, user))
    found = broker.list_topics("red.visits", timeout=deadline(15)).topics["red.visits"].error
    assert found is not None
    assert found.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert "red.visits" not in broker.list_topics(timeout=deadline(15)).topics


def test_no_principal_sees_a_group_of_another_environment(blue: Settings) -> None:
    broker = AdminClient(strange(blue, KafkaUser.READER))

    def describe(group: str) -> None:
        [answer] = broker.describe_consumer_groups([group], request_timeout=deadline(15)).values()
        try:
            answer.result()
        except KafkaException as error:
            if error.args[0].code() in STARTING:
                raise ServiceDown(str(error)) from error
            raise

    until(lambda: describe("blue.truelog-test"), 30, "the group")
    with pytest.raises(KafkaException) as refused:
        describe("red.truelog-test")
    assert refused.value.args[0].code() == KafkaError.GROUP_AUTHORIZATION_FAILED


def test_each_rule_names_its_environment(red: Settings, blue: Settings) -> None:
    found = access._existing(outside(red))
    for each in (red, blue):
        own = [rule for rule in found if rule.principal.startswith(f"User:{each.namespace}.")]
        assert own
        assert all(rule.name.startswith(f"{each.namespace}.") for rule in own)
    assert len([r for r in found if "red." in r.name]) == len([r for r in found if "blue." in r.name])


def test_set_up_changes_no_rules_the_second_time(red: Settings) -> None:
    before = access._existing(outside(red))
    access.create_users(topics.client(red, KafkaUser.ADMIN), red)
    assert access._existing(outside(red)) == before
