"""Topics that the platform writes for other programs and for its own relays, beside the topics of event types."""

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from confluent_kafka import KafkaError, TopicPartition
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from truelog.log import topics
from truelog.log.admin_client import Client, result, settled
from truelog.support.errors import ServiceDown, TopicRefused
from truelog.support.settings import KafkaUser, Settings
from truelog.support.wait import until

_SECONDS = 30.0
_NO_LIMIT = 2**63 - 1  # milliseconds, Kafka's default for the longest time before a compaction

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Compaction:
    """When Kafka compacts a topic, in seconds.

    segment: after which the next record begins a new segment. Kafka does not compact the last one.
    limit: after which a closed segment is compacted at the latest; None without a limit.
    tombstones: how long a tombstone stays after its first compaction.
    """

    segment: float
    limit: float | None
    tombstones: float


def tombstone_seconds(settings: Settings, name: str) -> float:
    """How long a tombstone stays in a topic at least.

    Raises:
        TopicRefused: the topic does not exist.
        ServiceDown: Kafka did not answer.
    """
    return compaction(settings, name).tombstones


def compaction(settings: Settings, name: str) -> Compaction:
    """When Kafka compacts a topic.

    Raises:
        TopicRefused: the topic does not exist.
        ServiceDown: Kafka did not answer.
    """
    found = _configuration(topics.client(settings), name)
    limit = int(found["max.compaction.lag.ms"])
    return Compaction(
        int(found["segment.ms"]) / 1_000,
        None if limit == _NO_LIMIT else limit / 1_000,
        int(found["delete.retention.ms"]) / 1_000,
    )


def last_written(settings: Settings, name: str) -> datetime | None:
    """When the newest record of a topic with one partition arrived, by the broker's clock. None if it has none.

    Raises:
        TopicRefused: the topic does not exist.
        ServiceDown: Kafka did not answer.
    """
    broker, newest = topics.client(settings), OffsetSpec.max_timestamp()
    [future] = broker.list_offsets({TopicPartition(name, 0): newest}, request_timeout=_SECONDS).values()
    found = result(broker, name, future)
    return datetime.fromtimestamp(found.timestamp / 1_000, UTC) if found.offset >= 0 else None


def delete_topics(settings: Settings, user: KafkaUser, names: Collection[str]) -> None:
    """Delete topics, and return when Kafka no longer has them.

    Raises:
        TopicRefused: Kafka refuses to delete a topic.
        ServiceDown: Kafka did not answer.
    """
    broker, reader = topics.client(settings, user), topics.client(settings)
    futures = broker.delete_topics(list(names), request_timeout=_SECONDS) if names else {}
    if refused := settled(broker, futures, unless=KafkaError.UNKNOWN_TOPIC_OR_PART)[1]:
        raise TopicRefused(" ".join(refused.values()))

    def deleted() -> None:
        if left := topics.existing_topics(reader).intersection(names):
            raise ServiceDown(f"Kafka still has {', '.join(sorted(left))}")

    until(deleted, _SECONDS, "the end of topics")


def create_topic(settings: Settings, user: KafkaUser, name: str, config: Mapping[str, str]) -> None:
    """Create a topic with one partition, whose order is then that of all its records. An existing one is configured.

    Raises:
        TopicRefused: Kafka refuses the topic.
        ServiceDown: Kafka did not answer.
    """
    broker, reader = topics.client(settings, user), topics.client(settings)
    if name in topics.existing_topics(reader):
        _configure(broker, name, dict(config.items() - _configuration(reader, name).items()))
        return
    new = NewTopic(name, 1, config={"message.timestamp.type": "LogAppendTime", **config})
    futures = broker.create_topics([new], request_timeout=_SECONDS)
    if refused := settled(broker, futures, unless=KafkaError.TOPIC_ALREADY_EXISTS)[1]:
        raise TopicRefused(" ".join(refused.values()))

    def created() -> None:
        try:
            topics.ends(reader, [name])
        except TopicRefused as unknown:
            raise ServiceDown(str(unknown)) from unknown

    until(created, _SECONDS, f"the topic {name}")


def _configuration(reader: Client, name: str) -> dict[str, str]:
    resource = ConfigResource(ResourceType.TOPIC, name)
    [future] = reader.describe_configs([resource], request_timeout=_SECONDS).values()
    return {each: str(entry.value) for each, entry in result(reader, name, future).items()}


def _configure(broker: Client, name: str, changed: Mapping[str, str]) -> None:
    """Change the configuration. A refusal is reported, and holds nothing up: the topic may still be written."""
    if not changed:
        return
    entries = [ConfigEntry(each, to, incremental_operation=AlterConfigOpType.SET) for each, to in changed.items()]
    resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=entries)
    [future] = broker.incremental_alter_configs([resource], request_timeout=_SECONDS).values()
    try:
        result(broker, name, future)
    except TopicRefused as refused:
        wanted = ", ".join(f"{each}={to}" for each, to in sorted(changed.items()))
        log.warning("%s Set %s, or let the principal change it (truelog.log.access)", refused, wanted)
    else:
        log.info("%s has %s now", name, dict(changed))
