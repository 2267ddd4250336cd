"""The collector's way into Kafka: records in, and where the log keeps each of them, or that it does not.

A request's records are answered together, by one future, when Kafka has all of them (`acks=all`, idempotent). If it
fails to take one, none is acknowledged: those that it did take lie in the log unacknowledged, and come twice when they
are sent again. `event_id` tells them apart.
"""

import asyncio
import logging
import os
import signal
from collections.abc import Sequence
from functools import partial

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from truelog.ingest.body_reader import RETRY_SECONDS
from truelog.ingest.event_classifier import ClassifiedRecord
from truelog.support.background import Background
from truelog.support.errors import RequestRefused, ServiceDown
from truelog.support.settings import Settings

log = logging.getLogger(__name__)

PartitionOffset = tuple[int, int]  # partition and offset

_ASK_SECONDS = 1.0
_ANSWER_SECONDS = 2.0


class EventProducer:
    """One producer for all requests; threads of its own wait for Kafka, so that the event loop never does."""

    def __init__(self, settings: Settings) -> None:
        self.is_reachable = False
        self._seconds = settings.collector_acknowledge_seconds
        self._producer = Producer(_configuration(settings) | {"error_cb": self._failed})
        self._threads = (
            Background("deliveries", partial(self._producer.poll, 0.2)),
            Background("kafka-answers", self.ask, _ASK_SECONDS),
        )

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Whatever was taken in is in Kafka, or its time is over."""
        for thread in self._threads:
            thread.stop()
        self._producer.flush(self._seconds)

    def ask(self) -> None:
        """Whether Kafka answers: who comes while it does not is sent away at once, and does not wait in vain."""
        try:
            self._producer.list_topics(timeout=_ANSWER_SECONDS)
        except KafkaException as away:
            if self.is_reachable:
                log.warning("Kafka is away: %s", away.args[0].str())
            self.is_reachable = False
        else:
            if not self.is_reachable:
                log.info("Kafka answers")
            self.is_reachable = True

    def require_reachable(self) -> None:
        if not self.is_reachable:
            raise ServiceDown("Kafka is away")

    async def append(self, records: Sequence[ClassifiedRecord]) -> list[PartitionOffset]:
        """Where each record lies; ServiceDown if Kafka has not all of them in time."""
        if not records:
            return []
        waiting = _Append(len(records))
        try:
            for index, record in enumerate(records):
                self._producer.produce(
                    record.topic, record.value, record.key, on_delivery=partial(waiting.delivered, index)
                )
        except BufferError:
            raise RequestRefused(429, "too much waits for Kafka", retry_after=RETRY_SECONDS) from None
        except KafkaException as failed:
            raise ServiceDown(f"Kafka did not take it: {failed.args[0].str()}") from failed
        return await waiting.done

    def _failed(self, error: KafkaError) -> None:
        """Called by Kafka's client; a producer that can go on no more ends the process, for a new one to begin."""
        if error.fatal():
            log.critical("Kafka's client gives up: %s", error.str())
            os.kill(os.getpid(), signal.SIGTERM)


class _Append:
    """The records of a request on their way; told of each by the one thread that polls."""

    def __init__(self, records: int) -> None:
        self._loop = asyncio.get_running_loop()
        self.done: asyncio.Future[list[PartitionOffset]] = self._loop.create_future()
        self._places: list[PartitionOffset] = [(-1, -1)] * records
        self._left = records
        self._error: KafkaError | None = None

    def delivered(self, index: int, error: KafkaError | None, message: Message) -> None:
        partition, offset = message.partition(), message.offset()
        if error is None and partition is not None and offset is not None:
            self._places[index] = partition, offset
        self._error = self._error or error
        self._left -= 1
        if not self._left:
            self._loop.call_soon_threadsafe(self._finish)

    def _finish(self) -> None:
        if self.done.done():
            return
        if self._error is None:
            self.done.set_result(self._places)
        else:
            self.done.set_exception(ServiceDown(f"Kafka did not take it: {self._error.str()}"))


def _configuration(settings: Settings) -> dict[str, object]:
    return {
        **settings.kafka(),
        "acks": "all",
        "enable.idempotence": True,
        "linger.ms": 5,
        "message.timeout.ms": int(settings.collector_acknowledge_seconds * 1000),
        "queue.buffering.max.messages": 1_000_000,
        "queue.buffering.max.kbytes": 512 * 1024,
        "reconnect.backoff.max.ms": 1000,
        # As Java's clients do it: a key lies in one partition, whoever sends it.
        "partitioner": "murmur2_random",
        "log_level": 0,
    }
