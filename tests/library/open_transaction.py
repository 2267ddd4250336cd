"""A transaction of another producer that has not ended: it hides all later records of its topic from readers."""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import Producer

from tests.deadline import deadline
from truelog.support.settings import Settings


@contextmanager
def open_transaction(settings: Settings, topic: str) -> Iterator[None]:
    """A transaction with one record in partition 0, which is aborted when the block ends."""
    producer = Producer({**settings.kafka(), "transactional.id": uuid.uuid4().hex})
    producer.init_transactions(deadline(20))
    producer.begin_transaction()
    producer.produce(topic, b"inside", b"another", partition=0)
    assert producer.flush(deadline(10)) == 0
    try:
        yield
    finally:
        producer.abort_transaction(deadline(20))
