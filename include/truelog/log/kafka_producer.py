"""Sending straight to Kafka: a producer that is an equal citizen beside the collector.

An event counts as sent when every replica in step has it (`acks=all`), and a retry inside the producer never makes it
two (idempotence). A key chooses the same partition as for Java's producers, so that senders of all kinds agree.
"""

import time
from collections.abc import Iterable
from types import TracebackType
from typing import NamedTuple, Self

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from truelog.log import topics
from truelog.support.errors import ServiceDown
from truelog.support.settings import Settings

# A broker that was killed is back well within this; one that is not back by then is reported, not waited for.
_PATIENCE_MS = 60_000


class OutgoingRecord(NamedTuple):
    """What Kafka is to keep."""

    topic: str
    key: str
    value: bytes


def make_producer(settings: Settings) -> Producer:
    """A producer whose acknowledgement means that the record is in the log, once."""
    return Producer(
        {
            **settings.kafka(),
            "acks": "all",
            "enable.idempotence": True,
            "partitioner": "murmur2_random",
            "linger.ms": 20,
            "compression.type": "lz4",
            "message.timeout.ms": _PATIENCE_MS,
            "log_level": 0,
        }
    )


class KafkaSender:
    """Sends records and counts what Kafka acknowledged; leaving its block waits for the rest.

    Raises:
        TopicRefused: a topic is missing, or its records would carry the producers' clocks.
        ServiceDown: Kafka did not take a record; the message says how many it took.
    """

    def __init__(self, settings: Settings, names: Iterable[str]) -> None:
        topics.require_log_append_time(settings, names)
        self.sent = 0
        self._failed: KafkaError | None = None
        self._producer = make_producer(settings)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._producer.flush()
        if error is None:
            self._require_taken()

    def send(self, record: OutgoingRecord) -> None:
        """Hand it over; waits while the producer's queue is full."""
        while True:
            try:
                self._producer.produce(record.topic, record.value, record.key, on_delivery=self._answered)
            except BufferError:
                self.listen(0.1)
            else:
                return self.listen(0)

    def listen(self, seconds: float) -> None:
        """Take in what Kafka answers, for so long."""
        until = time.monotonic() + seconds
        self._producer.poll(0)
        while (left := until - time.monotonic()) > 0:
            self._producer.poll(left)  # returns with each answer
        self._require_taken()

    def _answered(self, error: KafkaError | None, _: Message) -> None:
        if error is None:
            self.sent += 1
        else:
            self._failed = self._failed or error

    def _require_taken(self) -> None:
        if self._failed is None:
            return
        if self._failed.fatal():
            raise KafkaException(self._failed)
        raise ServiceDown(f"Kafka took {self.sent:,} records and then no more: {self._failed.str()}")
