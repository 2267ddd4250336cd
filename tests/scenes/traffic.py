"""Page views sent straight to Kafka, by a producer that knows what the broker acknowledged."""

import json
import random
from datetime import UTC, datetime, timedelta

from confluent_kafka import KafkaError, Message, Producer

from truelog.settings import Settings


class Traffic:
    """Sends seeded page views, one in fifty malformed; keeps the value of every acknowledged one."""

    def __init__(self, settings: Settings, seed: int = 1) -> None:
        self.random = random.Random(seed)
        self.producer = Producer({**settings.kafka(), "acks": "all", "enable.idempotence": True, "linger.ms": 5})
        self.acknowledged: list[bytes] = []
        self.sent = 0

    def send(self, events: int) -> None:
        for _ in range(events):
            self.sent += 1
            value = self._event()
            key = f"v{self.random.randrange(200)}"
            self.producer.produce("page_view", value, key, on_delivery=self._delivered)
            self.producer.poll(0)

    def flush(self) -> None:
        assert self.producer.flush(60) == 0, "some records were never acknowledged"

    @property
    def good(self) -> int:
        return sum(value.startswith(b"{") for value in self.acknowledged)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        value = message.value()
        assert value is not None
        self.acknowledged.append(value)

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
