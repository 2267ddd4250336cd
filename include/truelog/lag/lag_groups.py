"""Positions as consumer groups, so that the tools which people have for Kafka see how far each reader has come.

A view is the group `truelog.<application>.<view>`, the archive `truelog.archive`. Nobody reads them back: positions
live where they commit with the rows, and what stands here is a copy that is seconds old.
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
    """The group under which a reader's positions are published."""
    return (
        f"truelog.{reader}" if reader == ARCHIVE else f"truelog.{application.application_of(settings, reader)}.{reader}"
    )


def publish_groups(settings: Settings, broker: AdminClient, stands: Mapping[str, Positions]) -> None:
    """Commit these positions, each reader's in its group; what fails for one holds up no other.

    Raises:
        ServiceDown: Kafka did not take all of them.
    """
    asked: dict[str, Future[ConsumerGroupTopicPartitions]] = {}
    for reader, at in stands.items():
        group = group_name(settings, reader)
        places = [TopicPartition(topic, partition, at.at(topic, partition)) for topic, partition in at.partitions()]
        if places:
            wanted = [ConsumerGroupTopicPartitions(group, places)]
            asked |= broker.alter_consumer_group_offsets(wanted, request_timeout=_TIMEOUT)
    if wrong := [f"{group}: {why}" for group, answer in asked.items() if (why := _refused(answer))]:
        raise ServiceDown(f"Kafka did not take the positions of {'; '.join(wrong)}. Does somebody join these groups?")


def _refused(answer: "Future[ConsumerGroupTopicPartitions]") -> str:
    """Why the broker did not take a group's positions, or those of one partition; else nothing."""
    try:
        places = answer.result().topic_partitions or []
    except KafkaException as failed:
        return str(failed)
    return ", ".join(f"{each.topic} {each.partition} {each.error.str()}" for each in places if each.error)
