"""A range of the log is read to its end or refused."""

import uuid

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.deadline import deadline, until
from tests.library.open_transaction import open_transaction
from truelog.log import topics
from truelog.log.kafka_reader import messages
from truelog.support.errors import ServiceDown
from truelog.support.settings import Settings


@pytest.fixture
def topic(kafka: Settings) -> str:
    name, admin = f"t{uuid.uuid4().hex[:8]}", AdminClient(kafka.kafka())
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(deadline(30))
    return name


def send(settings: Settings, topic: str, value: bytes) -> None:
    producer = Producer(settings.kafka())
    producer.produce(topic, value, partition=0)
    assert producer.flush(deadline(30)) == 0


def test_a_range_whose_end_an_open_transaction_hides_is_refused(kafka: Settings, topic: str) -> None:
    def read(end: int) -> list[bytes | str | None]:
        return [each.value() for each in messages(kafka, topic, 0, 0, end)]

    send(kafka, topic, b"before")
    with open_transaction(kafka, topic):
        send(kafka, topic, b"behind")
        assert topics.end_offsets(kafka, [topic]).at(topic, 0) == 3
        assert read(1) == [b"before"]
        with pytest.raises(ServiceDown, match=f"{topic} 0: a transaction at 1 has not ended and hides .* below 3"):
            read(3)

    def require_all() -> None:
        assert read(4) == [b"before", b"behind"]

    until(require_all, 30, "the end of the transaction")
