"""The collector's Kafka producer, which returns the offset of each record.

A request's future completes once Kafka has all of the request's records (`acks=all`, idempotent). If one record fails,
no record is acknowledged. The other records may still be in the log, and a retry then duplicates them. They have the
same `event_id`, and count once in a view with `dedupe`.
"""

import asyncio
import logging
import os
import signal
from collections.abc import Mapping, Sequence
from functools import partial

from confluent_kafka import KafkaError, KafkaException, Message

from truelog.kafka.producer import open_producer
from truelog.relay import trace
from truelog.sources.collector.body import RETRY_SECONDS
from truelog.sources.collector.classifier import ClassifiedRecord
from truelog.support.background import Background
from truelog.support.errors import RequestRefused, ServiceDown
from truelog.support.settings import KafkaUser, Settings

log = logging.getLogger(__name__)

PartitionOffset = tuple[int, int]  # partition and offset
Header = tuple[str, str | bytes | None]

_SLICE = 100  # records given to the client without a break for other requests
_CHECK_SECONDS = 1.0
_CHECK_TIMEOUT_SECONDS = 2.0


class EventProducer:
    """One producer for all requests. Its own threads wait for Kafka, so that the event loop never blocks."""

    def __init__(self, settings: Settings) -> None:
        self.is_reachable = False
        self._seconds = settings.collector_acknowledge_seconds
        self._producer = open_producer(_configuration(settings) | {"error_cb": self._on_error})
        self._threads = (
            Background("deliveries", partial(self._producer.poll, 0.2)),
            Background("kafka-check", self.check, _CHECK_SECONDS),
        )

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Wait until Kafka has all accepted records or their time limit has passed."""
        for thread in self._threads:
            thread.stop()
        self._producer.flush(self._seconds)

    def check(self) -> None:
        """Check that Kafka answers. While Kafka does not answer, requests are rejected at once instead of waiting."""
        try:
            self._producer.list_topics(timeout=_CHECK_TIMEOUT_SECONDS)
        except KafkaException as error:
            if self.is_reachable:
                log.warning("Kafka is unavailable: %s", error.args[0].str())
            self.is_reachable = False
        else:
            if not self.is_reachable:
                log.info("Kafka is available")
            self.is_reachable = True

    def require_reachable(self) -> None:
        if not self.is_reachable:
            raise ServiceDown("Kafka is unavailable")

    async def append(self, records: Sequence[ClassifiedRecord], headers: Mapping[str, bytes]) -> list[PartitionOffset]:
        """Send the records with these headers, and return the partition and offset of each record.

        A record with a valid trace of its own has that one.

        Raises:
            RequestRefused: 429, the producer's queue is full.
            ServiceDown: Kafka did not acknowledge all records in time.
        """
        if not records:
            return []
        request, of_each = _Append(len(records)), list[Header](headers.items())
        try:
            for index, record in enumerate(records):
                delivered = partial(request.delivered, index)
                given = _of_record(record, of_each) if record.trace else of_each
                self._producer.produce(record.topic, record.value, record.key, headers=given, on_delivery=delivered)
                if index % _SLICE == _SLICE - 1:
                    await asyncio.sleep(0)
        except BufferError:
            raise RequestRefused(429, "the queue for Kafka is full", retry_after=RETRY_SECONDS) from None
        except KafkaException as failed:
            raise ServiceDown(f"Kafka did not accept the events: {failed.args[0].str()}") from failed
        return await request.done

    def _on_error(self, error: KafkaError) -> None:
        """Called by the Kafka client. After a permanent failure, the process exits and its supervisor restarts it."""
        if error.fatal():
            log.critical("The Kafka client failed permanently: %s", error.str())
            os.kill(os.getpid(), signal.SIGTERM)


class _Append:
    """The unacknowledged records of one request. Only the polling thread calls `delivered`."""

    def __init__(self, records: int) -> None:
        self._loop = asyncio.get_running_loop()
        self.done: asyncio.Future[list[PartitionOffset]] = self._loop.create_future()
        self._offsets: list[PartitionOffset] = [(-1, -1)] * records
        self._left = records
        self._error: KafkaError | None = None

    def delivered(self, index: int, error: KafkaError | None, message: Message) -> None:
        partition, offset = message.partition(), message.offset()
        if error is None and partition is not None and offset is not None:
            self._offsets[index] = partition, offset
        self._error = self._error or error
        self._left -= 1
        if not self._left:
            self._loop.call_soon_threadsafe(self._finish)

    def _finish(self) -> None:
        if self.done.done():
            return
        if self._error is None:
            self.done.set_result(self._offsets)
        else:
            self.done.set_exception(ServiceDown(f"Kafka did not accept the events: {self._error.str()}"))


def _configuration(settings: Settings) -> dict[str, object]:
    return {
        **settings.kafka(KafkaUser.COLLECTOR),
        "acks": "all",
        "enable.idempotence": True,
        "linger.ms": 5,
        "message.timeout.ms": int(settings.collector_acknowledge_seconds * 1000),
        "queue.buffering.max.messages": 1_000_000,
        "queue.buffering.max.kbytes": 512 * 1024,
        "reconnect.backoff.max.ms": 1000,
        # The partitioner of Java clients, so that a key maps to the same partition for every sender.
        "partitioner": "murmur2_random",
        "log_level": 0,
    }


def _of_record(record: ClassifiedRecord, of_each: list[Header]) -> list[Header]:
    """The headers of a record with a trace of its own, which may be invalid."""
    return list[Header](trace.record_headers(record.trace).items()) or of_each
