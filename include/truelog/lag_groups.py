"""Positions as consumer groups, so that the tools which people have for Kafka see how far each reader has come.

A view is the group `truelog.<application>.<view>`, the archive `truelog.archive`. Nobody reads them back: positions
live where they commit with the rows, and what stands here is a copy that is seconds old.
"""

from collections.abc import Mapping

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from truelog import application
from truelog.application import ARCHIVE
from truelog.errors import ServiceDown
from truelog.positions import Positions
from truelog.settings import Settings

_TIMEOUT = 10.0


def name(settings: Settings, reader: str) -> str:
    """The group under which a reader's positions are published."""
    return f"truelog.{reader}" if reader == ARCHIVE else f"truelog.{application.of(settings, reader)}.{reader}"


def publish(settings: Settings, broker: AdminClient, stands: Mapping[str, Positions]) -> None:
    """Commit these positions, each reader's in its group.

    Raises:
        ServiceDown: Kafka did not take them.
    """
    for reader, at in stands.items():
        group = name(settings, reader)
        places = [TopicPartition(topic, partition, at.at(topic, partition)) for topic, partition in at.partitions()]
        if not places:
            continue
        asked = [ConsumerGroupTopicPartitions(group, places)]
        try:
            for answer in broker.alter_consumer_group_offsets(asked, request_timeout=_TIMEOUT).values():
                answer.result()
        except KafkaException as failed:
            raise ServiceDown(
                f"Kafka did not take the positions of {group}: {failed}; does somebody join it?"
            ) from failed
