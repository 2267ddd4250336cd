"""Topics that the platform writes for other programs and for its own relays, beside the topics of event types."""

from collections.abc import Mapping

from confluent_kafka import KafkaError
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its annotations do not re-export
    ConfigResource,
    NewTopic,
    ResourceType,
)

from truelog.log import topics
from truelog.log.admin_client import result, settled
from truelog.support.errors import ServiceDown, TopicRefused
from truelog.support.settings import KafkaUser, Settings
from truelog.support.wait import until

_SECONDS = 30.0


def tombstone_seconds(settings: Settings, name: str) -> float:
    """How long a tombstone stays in a topic at least.

    Raises:
        TopicRefused: the topic does not exist.
        ServiceDown: Kafka did not answer.
    """
    broker, resource = topics.client(settings), ConfigResource(ResourceType.TOPIC, name)
    [future] = broker.describe_configs([resource], request_timeout=_SECONDS).values()
    return int(result(broker, name, future)["delete.retention.ms"].value) / 1_000


def create_topic(settings: Settings, user: KafkaUser, name: str, config: Mapping[str, str]) -> None:
    """Create a topic with one partition, whose order is then that of all its records. An existing one stays as it is.

    Raises:
        TopicRefused: Kafka refuses the topic.
        ServiceDown: Kafka did not answer.
    """
    broker, reader = topics.client(settings, user), topics.client(settings)
    if name in topics.existing_topics(reader):
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
