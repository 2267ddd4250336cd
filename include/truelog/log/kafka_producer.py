"""A Kafka producer for senders that do not use the collector.

An event counts as sent once all in-sync replicas have it (`acks=all`), and producer retries never duplicate the event
(idempotence). Keys map to the same partitions as in Java producers, so that all kinds of senders agree.
"""

import time
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import NamedTuple, Self

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from truelog.kafka.producer import open_producer
from truelog.log import topics
from truelog.support.errors import ServiceDown
from truelog.support.settings import KafkaUser, Settings

# A broker that was killed restarts well within this time. A longer outage is reported as an error.
_TIMEOUT_MS = 60_000


class OutgoingRecord(NamedTuple):
    """A record to send to Kafka."""

    topic: str
    key: str
    value: bytes


def make_producer(
    settings: Settings,
    on_error: Callable[[KafkaError], None] | None = None,
    user: KafkaUser = KafkaUser.PRODUCER,
) -> Producer:
    """A producer of events whose acknowledgement means that the record is in the log exactly once."""
    return open_producer(
        {
            **settings.kafka(user),
            **({"error_cb": on_error} if on_error else {}),
            "acks": "all",
            "enable.idempotence": True,
            "partitioner": "murmur2_random",
            "linger.ms": 20,
            "compression.type": "lz4",
            "message.timeout.ms": _TIMEOUT_MS,
            "log_level": 0,
        }
    )


def client_error(failed: KafkaException | SystemError) -> KafkaError:
    """The client's error. If a fatal error arrives during callbacks, confluent-kafka raises a SystemError from it."""
    cause = failed if isinstance(failed, KafkaException) else failed.__cause__
    if not isinstance(cause, KafkaException):
        raise failed
    error: KafkaError = cause.args[0]
    return error


class KafkaSender:
    """Sends records and counts the acknowledged records. On exit, the context waits for outstanding acknowledgements.

    Raises:
        TopicRefused: a topic is missing, or its records would carry timestamps from the producers' clocks.
        ServiceDown: Kafka did not accept a record. The message says how many records Kafka accepted.
        ReadsOnly: the events are another environment's.
    """

    def __init__(self, settings: Settings, names: Iterable[str], user: KafkaUser = KafkaUser.PRODUCER) -> None:
        settings.require_own_events("the writing of events")
        topics.require_log_append_time(settings, names)
        self.sent = 0
        self._failed: KafkaError | None = None
        self._producer = make_producer(settings, self._on_error, user)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        while self._producer.flush(1) and not self._refused():
            continue
        if error is None:
            self._require_accepted()

    def send(self, record: OutgoingRecord) -> None:
        """Put a record into the producer's queue, and wait while the queue is full."""
        while True:
            try:
                self._producer.produce(record.topic, record.value, record.key, on_delivery=self._delivered)
            except BufferError:
                self.poll(0.1)
            else:
                return self.poll(0)

    def poll(self, seconds: float) -> None:
        """Process Kafka's acknowledgements for `seconds`."""
        until = time.monotonic() + seconds
        self._producer.poll(0)
        while (left := until - time.monotonic()) > 0:
            self._producer.poll(left)  # returns after each acknowledgement
        self._require_accepted()

    def _delivered(self, error: KafkaError | None, _: Message) -> None:
        if error is None:
            self.sent += 1
        else:
            self._failed = self._failed or error

    def _on_error(self, error: KafkaError) -> None:
        """Report a wrong password at once. Otherwise, the records would wait for the time limit."""
        if error.code() == KafkaError._AUTHENTICATION:
            self._failed = self._failed or error

    def _refused(self) -> bool:
        return self._failed is not None and self._failed.code() == KafkaError._AUTHENTICATION

    def _require_accepted(self) -> None:
        if self._failed is None:
            return
        if self._failed.fatal():
            raise KafkaException(self._failed)
        raise ServiceDown(f"Kafka accepted {self.sent:,} records and then failed: {self._failed.str()}")
