"""Publishes positions as Kafka consumer groups, so that common Kafka tools show how far each reader has come.

A view is the group `truelog.<application>.<view>`, the archive is `truelog.archive`. Truelog never reads the groups.
Positions are committed with a view's rows; the groups hold copies that are seconds old.
"""

from collections.abc import Mapping
from concurrent.futures import Future

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from truelog.control import application
from truelog.control.application import ARCHIVE
from truelog.log.positions import Positions
from truelog.support.errors import ServiceDown
from truelog.support.settings import Settings

_TIMEOUT = 10.0


def group_name(settings: Settings, reader: str) -> str:
    """The group that holds a reader's positions."""
    return (
        f"truelog.{reader}" if reader == ARCHIVE else f"truelog.{application.application_of(settings, reader)}.{reader}"
    )


def publish_groups(settings: Settings, broker: AdminClient, positions: Mapping[str, Positions]) -> None:
    """Commit each reader's positions in its group. A failure of one group does not prevent the others.

    Raises:
        ServiceDown: Kafka did not accept all of them.
    """
    responses: dict[str, Future[ConsumerGroupTopicPartitions]] = {}
    for reader, at in positions.items():
        group = group_name(settings, reader)
        offsets = [TopicPartition(topic, partition, at.at(topic, partition)) for topic, partition in at.partitions()]
        if offsets:
            request = [ConsumerGroupTopicPartitions(group, offsets)]
            responses |= broker.alter_consumer_group_offsets(request, request_timeout=_TIMEOUT)
    errors = [f"{group}: {error}" for group, response in responses.items() if (error := _error(response))]
    if errors:
        raise ServiceDown(f"Kafka did not accept the positions of {'; '.join(errors)}. Has a consumer joined a group?")


def _error(response: "Future[ConsumerGroupTopicPartitions]") -> str:
    """Why the broker rejected the positions of a group or of one of its partitions; else an empty string."""
    try:
        partitions = response.result().topic_partitions or []
    except KafkaException as error:
        return str(error)
    return ", ".join(f"{each.topic} {each.partition} {each.error.str()}" for each in partitions if each.error)
