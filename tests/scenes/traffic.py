"""Page views sent straight to Kafka, by a producer that knows what the broker acknowledged."""

import json
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from pydantic import BaseModel, ValidationError

from truelog import topics
from truelog.event import load_events
from truelog.settings import Settings


class Traffic:
    """Sends seeded page views, one in fifty malformed; counts those that the broker acknowledged."""

    def __init__(self, settings: Settings, seed: int = 1) -> None:
        self.random = random.Random(seed)
        self.producer = Producer({**settings.kafka(), "acks": "all", "enable.idempotence": True, "linger.ms": 5})
        self.acknowledged = 0

    def send(self, events: int, *, flush: bool = True) -> None:
        for _ in range(events):
            key = f"v{self.random.randrange(200)}"
            self.producer.produce("page_view", self._event(), key, on_delivery=self._delivered)
            self.producer.poll(0)
        if flush:
            self.flush()

    @contextmanager
    def arriving(self, events: int, seconds: float) -> Iterator[None]:
        """So many events every so many seconds, without a pause, for as long as the block runs."""
        over = threading.Event()

        def send() -> None:
            while not over.wait(seconds):
                self.send(events)

        sender = threading.Thread(target=send)
        sender.start()
        try:
            yield
        finally:
            over.set()
            sender.join()

    def flush(self) -> None:
        assert self.producer.flush(60) == 0, "some records were never acknowledged"

    def _delivered(self, error: KafkaError | None, _: Message) -> None:
        assert error is None, error
        self.acknowledged += 1

    def _event(self) -> bytes:
        draw = self.random
        if draw.random() < 0.02:
            return draw.choice((b"not json", b"[]", b"", b'"{"'))
        now = datetime.now(UTC) - timedelta(seconds=draw.expovariate(0.1))
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


def in_the_log(settings: Settings, topic: str = "page_view") -> list[bytes | None]:
    """The value of every record that the log still has of a topic, read with a stock client."""
    begins = topics.earliest_offsets(settings, [topic]).offsets[topic]
    wanted = {**settings.kafka(), "group.id": "scenes", "enable.auto.commit": False, "enable.partition.eof": True}
    consumer = Consumer(wanted)
    consumer.assign([TopicPartition(topic, partition, begin) for partition, begin in begins.items()])
    values: list[bytes | None] = []
    ended: set[int | None] = set()
    while ended != set(begins):  # by its ends, not by counting: transactions leave holes
        messages = consumer.consume(10_000, timeout=1)
        for message in messages:
            if error := message.error():
                assert error.code() == KafkaError._PARTITION_EOF, error
                ended.add(message.partition())
            else:
                values.append(message.value())
    consumer.close()
    return values


def good(values: list[bytes | None]) -> int:
    """How many are page views, by the model that the collector validates with: a second opinion on the decoder."""
    model = load_events()["page_view"].model
    return sum(_accepts(model, value) for value in values if value is not None)


def _accepts(model: type[BaseModel], value: bytes) -> bool:
    try:
        model.model_validate_json(value)
    except ValidationError:
        return False
    return True
