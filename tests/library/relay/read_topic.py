"""Reads the committed records of a topic with one partition, as a consumer of another program would."""

from collections.abc import Iterator
from contextlib import closing

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from tests.deadline import deadline
from truelog.support.settings import KafkaUser, Settings


def records(settings: Settings, topic: str) -> Iterator[Message]:
    config = {**settings.kafka(KafkaUser.READER), "group.id": "truelog-test", "isolation.level": "read_committed"}
    config |= {"auto.offset.reset": "earliest", "enable.partition.eof": True, "enable.auto.commit": False}
    with closing(Consumer(config)) as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])
        while True:
            message = consumer.poll(deadline(15))
            assert message is not None
            error = message.error()
            if error is not None and error.code() == KafkaError._PARTITION_EOF:
                return
            assert error is None, error
            yield message


def values(settings: Settings, topic: str) -> list[int]:
    return [int(each.value() or b"") for each in records(settings, topic)]


def table(settings: Settings, topic: str) -> dict[str, str]:
    """What a reader of a compacted topic arrives at from nothing."""
    found: dict[str, str] = {}
    for each in records(settings, topic):
        key, value = text(each.key() or b""), each.value()
        found.pop(key, None)
        found |= {} if value is None else {key: text(value)}
    return found


def text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode()
