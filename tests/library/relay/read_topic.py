"""Reads the committed records of a topic with one partition, as a consumer of another program would."""

from collections.abc import Iterable, Iterator
from contextlib import closing

from confluent_kafka import KafkaError, Message, TopicPartition

from tests.deadline import deadline, until
from truelog.kafka.consumer import open_consumer
from truelog.log import topics
from truelog.support.errors import ServiceDown
from truelog.support.settings import KafkaUser, Settings


def wait_for_transactions(settings: Settings, names: Iterable[str]) -> None:
    """Wait until no transaction is open in these topics. Kafka answers a commit before its records can be read."""
    broker = topics.client(settings)

    def require_complete() -> None:
        found, _ = topics.ends_of_existing(broker, names)
        ends = found.whole()
        if topics.committed_ends(broker, ends.offsets) != ends:
            raise ServiceDown("a transaction is open")

    until(require_complete, 15, "the end of the last transaction")


def records(settings: Settings, topic: str) -> Iterator[Message]:
    wait_for_transactions(settings, [topic])
    config = {**settings.kafka(KafkaUser.READER), "group.id": "truelog-test", "isolation.level": "read_committed"}
    config |= {"auto.offset.reset": "earliest", "enable.partition.eof": True, "enable.auto.commit": False}
    with closing(open_consumer(config)) as consumer:
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
