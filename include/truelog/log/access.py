"""Kafka's principals: their passwords, and the rights of each on topics.

Set-up creates the principals with the superuser's rights. Afterwards, each part of the platform uses the principal of
its duty:

- the collector writes events and dead letters, and sees which topics there are and where they end
- `truelog-producer`, for commands and for producers that bypass the collector, writes events; `truelog dead-letters
  replay` is such a command
- the tick service writes ticks
- a relay (`truelog.relay`) creates, configures and writes output topics, whose names begin with `view.`, and the
  places of relays. It writes the events of accepted commands, and it alone writes claims
- Kafka Connect writes the changes of captured tables
- `truelog forget` writes erasures and deletes output topics, and it alone
- every other part reads

Kafka refuses everything that no rule allows. With a namespace, the principals and all that their rules name begin with
it, and the reader reads only such topics. If the events are those of another environment, the reader also reads that
one's event topics, and no principal writes them.
"""

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialUpsertion,
)

from truelog.schema.event import Topic
from truelog.schema.names import OUTPUT, TICKS
from truelog.support.errors import ServiceDown
from truelog.support.setting_groups.namespace import Names
from truelog.support.settings import KafkaUser, Settings
from truelog.support.wait import until

log = logging.getLogger(__name__)

_SECONDS = 10.0
_APPLIED_SECONDS = 60.0  # a broker on a busy machine applies late what it has accepted
_ITERATIONS = 4096
_SCRAM = {name.replace("_", "-"): ScramMechanism[name] for name in ("SCRAM_SHA_256", "SCRAM_SHA_512")}
# Topics that are not for events: only these principals may write to them.
_WRITERS = {
    TICKS: (KafkaUser.TICKS,),
    "dead_letter": (KafkaUser.COLLECTOR,),
    "claim": (KafkaUser.RELAY,),
    "erasure": (KafkaUser.ERASER,),
}
RELAY_PLACES = "relay.places"
RELAY_TRANSACTIONS = "truelog-relay-"  # the prefix of the transactional ids of relays
REPLAY_TRANSACTIONS = "truelog-replay"  # the transactional id of replayed dead letters
USER, _ALL = "User:", "*"
_GROUPS = ("truelog", "spark-kafka-")  # prefixes of the consumer groups that Truelog and Spark name


def create_users(broker: AdminClient, settings: Settings) -> None:
    """Create the principals that have passwords, with their rights that do not depend on topics. Idempotent.

    Kafka stores the passwords of SCRAM alone. For other mechanisms, the brokers' configuration has the principals.
    """
    if settings.kafka_mechanism in _SCRAM:
        _create_logins(broker, settings)
    _create(broker, settings.names, [*_reading(), *_looking(), *_replaying(), *_relaying(), *_erasing()])


def _create_logins(broker: AdminClient, settings: Settings) -> None:
    made = {settings.names.in_kafka(user.value): each for user, each in settings.kafka_passwords.items() if each}
    mechanism = ScramCredentialInfo(_SCRAM[settings.kafka_mechanism], _ITERATIONS)
    upserts: list[UserScramCredentialAlteration] = [
        UserScramCredentialUpsertion(user, mechanism, password.get_secret_value().encode())
        for user, password in made.items()
    ]
    if upserts:
        for future in broker.alter_user_scram_credentials(upserts, request_timeout=_SECONDS).values():
            future.result()
        _wait_for_users(broker, list(made))


def grant_writing(broker: AdminClient, names: Names, topics: Mapping[str, Topic]) -> None:
    """Let the principals of these topics write to them. Idempotent."""
    _create(broker, names, [rule for name, topic in topics.items() for rule in _writing(name, topic)])


def grant_reading(broker: AdminClient, names: Names, topics: Iterable[str]) -> None:
    """Let the reader read these event topics of another environment. Idempotent."""
    _create(broker, names, [rule for name in topics for rule in _reading_of(name)])


def _writing(name: str, topic: Topic) -> list[AclBinding]:
    usual = (KafkaUser.CONNECT,) if topic.source else (KafkaUser.COLLECTOR, KafkaUser.PRODUCER, KafkaUser.RELAY)
    users = _WRITERS.get(name, usual)
    return [_rule(user, ResourceType.TOPIC, name, AclOperation.WRITE) for user in users]  # implies DESCRIBE


def _reading() -> list[AclBinding]:
    prefixed = ResourcePatternType.PREFIXED
    groups = [_rule(KafkaUser.READER, ResourceType.GROUP, each, AclOperation.READ, prefixed) for each in _GROUPS]
    return _reading_of(_ALL) + groups


def _reading_of(topic: str) -> list[AclBinding]:
    anything = [AclOperation.READ, AclOperation.DESCRIBE_CONFIGS]
    return [_rule(KafkaUser.READER, ResourceType.TOPIC, topic, each) for each in anything]


def _looking() -> list[AclBinding]:
    return [_rule(KafkaUser.COLLECTOR, ResourceType.TOPIC, _ALL, AclOperation.DESCRIBE)]


def _replaying() -> list[AclBinding]:
    kind, anything = ResourceType.TRANSACTIONAL_ID, [AclOperation.WRITE, AclOperation.DESCRIBE]
    return [_rule(KafkaUser.PRODUCER, kind, REPLAY_TRANSACTIONS, each) for each in anything]


def _relaying() -> list[AclBinding]:
    user, anything = KafkaUser.RELAY, [AclOperation.WRITE, AclOperation.CREATE]
    prefixed, transactions = ResourcePatternType.PREFIXED, [AclOperation.WRITE, AclOperation.DESCRIBE]
    managing = [*anything, AclOperation.ALTER_CONFIGS]
    outputs = [_rule(user, ResourceType.TOPIC, OUTPUT, each, prefixed) for each in managing]
    places = [_rule(user, ResourceType.TOPIC, RELAY_PLACES, each) for each in anything]
    kind = ResourceType.TRANSACTIONAL_ID
    return outputs + places + [_rule(user, kind, RELAY_TRANSACTIONS, each, prefixed) for each in transactions]


def _erasing() -> list[AclBinding]:
    return [_rule(KafkaUser.ERASER, ResourceType.TOPIC, OUTPUT, AclOperation.DELETE, ResourcePatternType.PREFIXED)]


def _rule(
    user: KafkaUser,
    kind: ResourceType,
    name: str,
    operation: AclOperation,
    pattern: ResourcePatternType = ResourcePatternType.LITERAL,
) -> AclBinding:
    return AclBinding(kind, name, pattern, f"{USER}{user.value}", "*", operation, AclPermissionType.ALLOW)


def _in_kafka(names: Names, rule: AclBinding) -> AclBinding:
    """The rule with Kafka's names. A rule for all topics becomes one for those of the namespace."""
    if not names.namespace:
        return rule
    is_for_all = rule.name == _ALL
    is_of_topic = rule.restype == ResourceType.TOPIC and not is_for_all
    name = names.topic_of(rule.name) if is_of_topic else names.in_kafka("" if is_for_all else rule.name)
    pattern = ResourcePatternType.PREFIXED if is_for_all else rule.resource_pattern_type
    principal = f"{USER}{names.in_kafka(rule.principal.removeprefix(USER))}"
    return AclBinding(rule.restype, name, pattern, principal, rule.host, rule.operation, rule.permission_type)


def _create(broker: AdminClient, names: Names, chosen: list[AclBinding]) -> None:
    """Add the missing rules, and wait until the broker applies them."""
    rules = [_in_kafka(names, each) for each in chosen]
    try:
        existing = _existing(broker)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.SECURITY_DISABLED:
            raise
        log.warning("Kafka has no authorizer, so it has no rules: everyone who reaches it may read and write")
        return
    missing = [rule for rule in rules if rule not in existing]
    if not missing:
        return
    for future in broker.create_acls(missing, request_timeout=_SECONDS).values():
        future.result()

    def applied() -> None:
        if not set(missing) <= _existing(broker):
            raise ServiceDown("the broker has not applied all of them yet")

    until(applied, _APPLIED_SECONDS, "the rules for Kafka's principals")


def _existing(broker: AdminClient) -> set[AclBinding]:
    kinds = (ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY)
    everything = AclBindingFilter(*kinds)
    return set(broker.describe_acls(everything, request_timeout=_SECONDS).result())


def _wait_for_users(broker: AdminClient, users: list[str]) -> None:
    def known() -> None:
        found: Any = broker.describe_user_scram_credentials(users, request_timeout=_SECONDS)
        if unknown := [user for user, future in found.items() if future.exception() is not None]:
            raise ServiceDown(f"the broker does not know {', '.join(unknown)} yet")

    until(known, _APPLIED_SECONDS, "Kafka's principals")
