"""The committed records of a topic as they come, for people who watch it."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from truelog.kafka.consumer import open_consumer
from truelog.log import topics
from truelog.support.settings import KafkaUser, Settings

_AGAIN = (KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT)  # the client connects again by itself
_POLL_SECONDS = 0.2  # Ctrl-C is noticed between two polls


@dataclass(frozen=True)
class TailedRecord:
    """A record as text. Bytes that are not UTF-8 are shown as escapes."""

    partition: int
    offset: int
    key: str | None
    value: str | None


def follow(settings: Settings, topic: str, *, from_beginning: bool) -> Iterator[TailedRecord]:
    """The records behind the present end of each partition, or all of them, without an end.

    Raises:
        ServiceDown, KafkaException: Kafka did not answer.
    """
    broker = topics.client(settings)
    where = topics.begins(broker, [topic]) if from_beginning else topics.committed_ends(broker, [topic])
    config = {**settings.kafka(KafkaUser.READER), "group.id": "truelog-tail", "enable.auto.commit": False}
    config |= {"isolation.level": "read_committed", "auto.offset.reset": "earliest", "log_level": 0}
    with closing(open_consumer(config)) as consumer:
        consumer.assign([TopicPartition(topic, each, offset) for each, offset in where.offsets[topic].items()])
        while True:
            message = consumer.poll(_POLL_SECONDS)
            if message is None:
                continue
            error = message.error()
            if error is not None and error.code() not in _AGAIN:
                raise KafkaException(error)
            if error is None:
                key, value = message.key(), message.value()
                yield TailedRecord(message.partition() or 0, message.offset() or 0, _text(key), _text(value))


def _text(value: str | bytes | None) -> str | None:
    return value.decode(errors="backslashreplace") if isinstance(value, bytes) else value
