"""Kafka: the sign-in of each principal, encryption, and the topics of the declared event types."""

from collections.abc import Iterator, Mapping

from confluent_kafka import KafkaException

from truelog.doctor import transport
from truelog.doctor.result import Area, Result, has_failed
from truelog.log import topics
from truelog.log.admin_client import Client, describe_existing, reason
from truelog.schema.event import EventType
from truelog.schema.loading.events import load_proposals
from truelog.schema.names import TICKS
from truelog.support.durations import in_words
from truelog.support.errors import TopicRefused
from truelog.support.setting_groups.kafka_oauth import OAUTH_CA
from truelog.support.settings import KafkaUser, Settings

_SECONDS = 10.0
_COPIES = 3  # of a partition, where there are as many brokers


def _checks(area: Area, settings: Settings) -> Iterator[Result]:
    yield from (reached := list(_transport(area, settings)))
    if has_failed(reached) and settings.kafka_is_encrypted:
        return  # each principal would wait for the same answer
    if not settings.kafka_protocol.startswith("SASL"):
        found = f"{settings.kafka_protocol}: anyone can write"
        yield area.failed("principals", found, "Use SASL_SSL, and give each principal a password.")
    yield from _principals(area, settings, _signed_in(settings))
    broker = topics.client(settings)
    types, broken = load_proposals(settings.events_folder)
    for name, why in broken.items():
        yield area.failed(f"event {name}", why, "Mend the file: `truelog events show` names the place.")
    yield from _topics(area, broker, types)


def _transport(area: Area, settings: Settings) -> Iterator[Result]:
    """Whether the connection to each bootstrap server is encrypted, or one result for all that are not."""
    if settings.kafka_is_encrypted:
        for host, port in settings.kafka_servers:
            server = transport.Server(host, port, settings.kafka_trust, "TRUELOG_KAFKA_CA_FILE")
            yield from transport.tls(area, server)
    else:
        hosts = [host for host, _ in settings.kafka_servers]
        remote = next((host for host in hosts if not transport.is_this_machine(host)), hosts[0])
        yield transport.plain(area, remote, "Set TRUELOG_KAFKA_PROTOCOL=SASL_SSL, and let the brokers listen with TLS.")
    if settings.kafka_uses_oauth:
        yield from _token_endpoint(area, settings)


def _token_endpoint(area: Area, settings: Settings) -> Iterator[Result]:
    """Whether the connection to the endpoint that issues the tokens for Kafka is encrypted."""
    host, port, is_encrypted = settings.kafka_oauth_server
    if is_encrypted:
        yield from transport.tls(area, transport.Server(host, port, settings.kafka_oauth_trust, OAUTH_CA))
    else:
        yield transport.plain(area, host, "Begin TRUELOG_KAFKA_OAUTH_TOKEN_URL with https://.")


def _signed_in(settings: Settings) -> dict[KafkaUser, str]:
    """The principals that sign in, with their names. A client of an OpenID provider does the duties of all."""
    if settings.kafka_uses_oauth:
        return {KafkaUser.ADMIN: f"client {settings.kafka_oauth_client_id}"}
    return {user: str(user) for user in KafkaUser}


def _principals(area: Area, settings: Settings, names: Mapping[KafkaUser, str]) -> Iterator[Result]:
    for user, name in names.items():
        if user is not KafkaUser.ADMIN and not settings.kafka_passwords[user]:
            cure = f"Give {user} a password (TRUELOG_{user.password_setting.upper()}), and run `truelog up`."
            yield area.warning(str(user), f"its duty falls to {settings.kafka_user}", cure)
            continue
        client = Client(settings, user)
        try:
            found = client.list_topics(timeout=_SECONDS)
            yield area.fine(name, f"signs in; {len(found.brokers)} broker{'s'[: len(found.brokers) != 1]}")
        except KafkaException as error:
            secret = "the client's secret" if settings.kafka_uses_oauth else "the principal's password"
            cure = f"Check TRUELOG_KAFKA_BOOTSTRAP, TRUELOG_KAFKA_PROTOCOL and {secret}."
            yield area.failed(name, reason(client, error.args[0]), cure)


def _topics(area: Area, broker: Client, types: Mapping[str, EventType]) -> Iterator[Result]:
    """One result for each topic that is not as declared, or one for all of them."""
    names = sorted({*types, TICKS})
    present, absent = describe_existing(broker, names, _SECONDS)
    kept = topics.retention_seconds(broker, present)
    brokers = len(broker.list_topics(timeout=_SECONDS).brokers)
    troubles = list[Result]()
    for name in names:
        if name not in present:
            cure = "Run `truelog up`, or let the reader describe the topic (include/truelog/log/access.py)."
            troubles.append(area.failed(f"topic {name}", absent[name], cure))
            continue
        try:
            topics.require_broker_timestamps(broker, [name])
        except TopicRefused as error:
            troubles.append(
                area.failed(f"topic {name}", str(error), "Its records cannot be corrected: see the message.")
            )
        copies = min(len(each.replicas) for each in present[name].partitions)
        if copies < min(brokers, _COPIES):
            found = f"{copies} of {brokers} brokers keep a copy"
            troubles.append(area.warning(f"topic {name}", found, f"Raise its replication factor to {_COPIES}."))
        if name in types:
            troubles += _unlike(area, name, types[name], len(present[name].partitions), kept[name])
    yield from troubles or [area.fine("topics", f"{len(names)} are as declared")]


def _unlike(area: Area, name: str, declared: EventType, partitions: int, kept: float | None) -> Iterator[Result]:
    topic, cure = declared.topic, "Run `truelog up`, which makes topics as declared."
    if partitions != topic.partitions:
        found = f"{partitions} partitions instead of {topic.partitions}"
        more = f"Declare `partitions={partitions}`: partitions cannot be removed."
        yield area.warning(f"topic {name}", found, cure if partitions < topic.partitions else more)
    wanted = None if topic.compacted else topic.retention_ms / 1000
    if kept is not None and (wanted is None or kept < wanted):
        found = f"records are deleted after {in_words(kept)}, before the declared time"
        yield area.failed(f"topic {name}", found, f"{cure} Records that no reader has read yet can be lost.")


KAFKA = Area(
    "kafka", _checks, (KafkaException,), "Start it, and check TRUELOG_KAFKA_BOOTSTRAP and TRUELOG_KAFKA_PROTOCOL."
)
