"""Publishes positions as Kafka consumer groups, so that common Kafka tools show how far each reader has read.

A view has the `truelog.<application>.<view>` group, and the archive has the `truelog.archive` group. Truelog never
reads the groups. A view's positions are committed with its rows, and its group only has a copy that is seconds old.
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
    """The name of a reader's consumer group."""
    return (
        f"truelog.{reader}"
        if reader == ARCHIVE
        else f"truelog.{application.application_of_view(settings, reader)}.{reader}"
    )


def publish_groups(settings: Settings, broker: AdminClient, positions: Mapping[str, Positions]) -> None:
    """Commit each reader's positions to its group. A failed commit does not prevent the commits to other groups.

    Raises:
        ServiceDown: Kafka did not accept all positions.
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
    """Why the broker rejected a group's positions or some of them, or an empty string if it accepted them all."""
    try:
        partitions = response.result().topic_partitions or []
    except KafkaException as error:
        return str(error)
    return ", ".join(f"{each.topic} {each.partition} {each.error.str()}" for each in partitions if each.error)
