"""Ticks: the clock of the log, a service without a port of its own."""

import sys
import time

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]  # its annotations do not re-export

from runtime.service import Service
from truelog.log import topics
from truelog.log.ticks import TOPIC
from truelog.schema import event
from truelog.support.errors import ServiceDown
from truelog.support.settings import Settings

_LATE_SECONDS = 5.0


def configure(_: Settings) -> None:
    """It needs nothing but its topic, which Kafka's own preparation makes."""


def command(_: Settings) -> list[str]:
    return [sys.executable, "-m", "truelog.log.ticks"]


def ready(settings: Settings) -> None:
    """The log's last tick is a recent one."""
    broker = topics.client(settings)  # named, since an answer never comes to a client that is gone
    asked = {TopicPartition(TOPIC, 0): OffsetSpec.max_timestamp()}  # type: ignore[no-untyped-call]
    [answer] = broker.list_offsets(asked, request_timeout=3).values()
    try:
        age = time.time() - answer.result().timestamp / 1000
    except KafkaException as error:
        raise ServiceDown(str(error)) from error
    if age > settings.tick_seconds + _LATE_SECONDS:
        told = topics.ends_by_partition(broker, topics.existing_topics(broker).intersection(event.event_names()))
        why = f": each tells where all partitions end, and {' '.join(told.untold.values())}" if told.untold else ""
        raise ServiceDown(f"no tick of late{why}")


def address(settings: Settings) -> str:
    return f"topic {TOPIC} at {settings.kafka_bootstrap}"


SERVICE = Service(
    name="ticks",
    configure=configure,
    command=command,
    ready=ready,
    address=address,
    after=("kafka",),
)
