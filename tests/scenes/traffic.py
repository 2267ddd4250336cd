"""Sends page views directly to Kafka and counts the acknowledged page views."""

import json
import random
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from confluent_kafka import KafkaError, Message, TopicPartition
from pydantic import ValidationError

from tests.deadline import deadline
from tests.meanwhile import meanwhile
from truelog.kafka.consumer import open_consumer
from truelog.kafka.producer import open_producer
from truelog.log import topics
from truelog.schema.event import Event, EventType
from truelog.schema.loading.events import load_events
from truelog.support.settings import Settings


@dataclass
class Arrival:
    """The number of events sent during a block, and the block's duration. Both are set when the block ends."""

    events: int = 0
    seconds: float = 0.0

    @property
    def per_second(self) -> float:
        return self.events / self.seconds


class Traffic:
    """Sends seeded random page views, one in fifty malformed, and counts the acknowledged page views."""

    def __init__(self, settings: Settings, seed: int = 1, delay: float = 10) -> None:
        self.random = random.Random(seed)
        self.delay = delay  # average seconds between an event and the moment it is sent
        self.configuration = {**settings.kafka(), "acks": "all", "enable.idempotence": True, "linger.ms": 5}
        self.producer = open_producer(self.configuration)
        self.acknowledged = 0

    def reconnect(self) -> None:
        """Start again with a new producer: an idempotent producer cannot go on after its records were cut."""
        self.producer = open_producer(self.configuration)

    def send(self, events: int, *, flush: bool = True) -> None:
        for _ in range(events):
            key = f"v{self.random.randrange(200)}"
            self.producer.produce("page_view", self._event(), key, on_delivery=self._delivered)
            self.producer.poll(0)
        if flush:
            self.flush()

    @contextmanager
    def arriving(self, events: int, seconds: float) -> Iterator[Arrival]:
        """Send events at a fixed rate while the block is running. After a delay, sending catches up."""
        arrival, began = Arrival(), time.monotonic()
        before = self.acknowledged

        def send(ended: threading.Event) -> None:
            due = began
            while not ended.wait(max(0.0, due - time.monotonic())):
                self.send(events, flush=False)
                due += seconds

        with meanwhile(send):
            yield arrival
        self.flush()
        arrival.events, arrival.seconds = self.acknowledged - before, time.monotonic() - began

    def flush(self) -> None:
        assert self.producer.flush(deadline(60)) == 0, "some records were never acknowledged"

    def _delivered(self, error: KafkaError | None, _: Message) -> None:
        assert error is None, error
        self.acknowledged += 1

    def _event(self) -> bytes:
        draw = self.random
        if draw.random() < 0.02:
            return draw.choice((b"not json", b"[]", b"", b'"{"'))
        now = datetime.now(UTC) - timedelta(seconds=draw.expovariate(1 / self.delay))
        event = {
            "event_id": f"{draw.getrandbits(64):x}",
            "occurred_at": now.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "visitor_id": f"v{draw.randrange(200)}",
            "url": f"https://shop.example/p/{int(draw.paretovariate(1)) % 500}",
            "browser": draw.choice(("Firefox", "Chrome", None)),
            "bytes": draw.randrange(50_000),
            "response_ms": draw.randrange(2_000),
        }
        return json.dumps(event).encode()


def in_the_log(
    settings: Settings, topic: str = "page_view", before: Mapping[int, int] | None = None
) -> list[bytes | None]:
    """The values of a topic's records, up to the `before` offsets if given."""
    found = messages_in_the_log(settings, topic)
    return [message.value() for message in found if before is None or _is_before(message, before)]


def messages_in_the_log(settings: Settings, topic: str) -> list[Message]:
    """A topic's committed records, read with a standard client."""
    begins = topics.earliest_offsets(settings, [topic]).offsets[topic]
    config = {**settings.kafka(), "group.id": "scenes", "enable.auto.commit": False, "enable.partition.eof": True}
    consumer = open_consumer(config)
    consumer.assign([TopicPartition(topic, partition, begin) for partition, begin in begins.items()])
    found: list[Message] = []
    ended: set[int | None] = set()
    while ended != set(begins):  # transactions leave gaps in the offsets, so counting records would never end
        for message in consumer.consume(10_000, timeout=0.5):
            if error := message.error():
                assert error.code() == KafkaError._PARTITION_EOF, error
                ended.add(message.partition())
            else:
                found.append(message)
    consumer.close()
    return found


def parsed(value: bytes | None) -> dict[str, Any] | None:
    """The record's JSON object, if it is one."""
    try:
        found = json.loads(value or b"")
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _is_before(message: Message, offsets: Mapping[int, int]) -> bool:
    partition, offset = message.partition(), message.offset()
    return partition is not None and offset is not None and offset < offsets.get(partition, 0)


def count_valid(values: list[bytes | None]) -> int:
    """The number of valid page views."""
    return len(page_views(values))


def page_views(values: Iterable[bytes | None]) -> list[Event]:
    """The valid page views."""
    page_view = load_events()["page_view"]
    return [event for value in values if (event := valid_event(page_view, value))]


def valid_event(event_type: EventType, value: bytes | None) -> Event | None:
    """The event, if the collector's model (not the decoder) accepts it and it is not a future event."""
    try:
        event = event_type.model.model_validate_json(value or b"")
    except ValidationError:
        return None
    is_future = event.occurred_at - (event.sent_at or datetime.now(UTC)) >= timedelta(minutes=5)
    return None if is_future else event
