"""Whether the log has a recent tick."""

import time

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec

from truelog.log import topics
from truelog.schema.names import TICKS
from truelog.services.ticks.registered_topics import RegisteredTopics
from truelog.support.errors import ServiceDown
from truelog.support.settings import Settings

_LATE_SECONDS = 5.0


def require_recent_tick(settings: Settings) -> None:
    """Raise ServiceDown unless the last tick in the log is recent."""
    broker = topics.client(settings)  # in a variable, because a garbage-collected client gets no response
    request = {TopicPartition(TICKS, 0): OffsetSpec.max_timestamp()}
    [answer] = broker.list_offsets(request, request_timeout=3).values()
    try:
        age = time.time() - answer.result().timestamp / 1000
    except KafkaException as error:
        raise ServiceDown(str(error)) from error
    if age > settings.tick_seconds + _LATE_SECONDS:
        ends = topics.ends_by_partition(broker, RegisteredTopics(settings).names() & topics.existing_topics(broker))
        reasons = " ".join(ends.unknown.values())
        why = f": a tick needs the end of every partition, and {reasons}" if reasons else ""
        raise ServiceDown(f"no recent tick{why}")


def address(settings: Settings) -> str:
    return f"{settings.names.topic_of(TICKS)} topic at {settings.kafka_bootstrap}"
