"""Mixed traffic: every event type, straight to Kafka and through the collector, repeated, and in transactions."""

import json
import random
import threading
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from http.client import HTTPException
from itertools import islice

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from tests.deadline import deadline
from tests.laws.events import hostile
from tests.meanwhile import meanwhile
from tests.nightly.customer_traffic import CustomerTraffic
from tests.scenes.collector_client import Client
from tests.scenes.traffic import parsed
from truelog.log.kafka_producer import OutgoingRecord
from truelog.schema.loading.events import load_events
from truelog.support.settings import Settings
from truelog.traffic.generator import TOPICS, generate

CAMPAIGN = "campaign"  # the field that producers send before it is declared
_CAMPAIGNS = ("spring", "autumn", None)
_PER_SECOND = 60
_SOCIAL = 0.6  # share of the events of the community, which has more event types than the shop
_DAY = 86_400.0  # seconds; no soak is longer
_HOSTILE = 50  # records of each event type


class MixedTraffic:
    """Sends events and counts the acknowledged records."""

    def __init__(self, settings: Settings, seed: int) -> None:
        self.settings, self.random = settings, random.Random(seed)
        self.ids = defaultdict[str, Counter[str]](Counter)  # acknowledged, by topic and event id
        self.sent: Counter[str] = Counter()  # acknowledged records by the way in which they were sent
        self.aborted = 0
        self.lock = threading.Lock()
        self.customers = CustomerTraffic(self.random)
        self.client = Client(settings, settings.producer_key.get_secret_value())
        self.producer = Producer({**settings.kafka(), "acks": "all", "enable.idempotence": True, "log_level": 0})
        self.transactions: Producer | None = None
        types = load_events()
        self.hostile_records = {t: [hostile(types[t])(self.random) for _ in range(_HOSTILE)] for t in TOPICS}
        now, late = (
            generate(
                seed=seed + days,
                begin=datetime.now(UTC) - timedelta(days=days),
                rate=_PER_SECOND,
                seconds=_DAY,
                social=_SOCIAL,
            )
            for days in (0, 8)
        )
        self.generated = (now, now, now, now, late)

    @property
    def acknowledged(self) -> int:
        return self.sent.total()

    @contextmanager
    def flowing(self) -> Iterator[None]:
        """Send a portion each second while the block is running."""

        def send(ended: threading.Event) -> None:
            while not ended.wait(1):
                self.send_portion()

        with meanwhile(send):
            yield
        self.flush()

    def send_portion(self) -> None:
        """Send a second of events: a third in each way, one record in twenty twice, and one second in five days late.

        The generator itself makes some events late, out of order, repeated or malformed. It goes on where it was, so
        that events refer to earlier ones. The events about customers go straight to Kafka.
        """
        made = islice(self.random.choice(self.generated), _PER_SECOND)
        records = [_with_campaign(record, self.random.choice(_CAMPAIGNS)) for record in made]
        repeated = self.random.sample(records, len(records) // 20)
        self._send_straight([*records[::3], *repeated, *self.customers.portion()])
        self._send_in_transactions(records[1::3])
        self._send_to_collector(records[2::3])

    def send_hostile(self) -> None:
        """Send invalid records, drawn as the laws draw them."""
        for topic, values in self.hostile_records.items():
            for value in values:
                self._produce(topic, None, value)
        self.flush()

    def flush(self) -> None:
        assert self.producer.flush(deadline(120)) == 0, "some records were never acknowledged"

    def _send_straight(self, records: Iterable[OutgoingRecord]) -> None:
        for record in records:
            self._produce(*record)
        self.producer.poll(0)

    def _produce(self, topic: str, key: str | None, value: bytes | None) -> None:
        self.producer.produce(topic, value, key, on_delivery=partial(self._delivered, topic, value))

    def _delivered(self, topic: str, value: bytes | None, error: KafkaError | None, _: Message) -> None:
        assert error is None, error
        self._acknowledge("straight to Kafka", topic, [value])

    def _send_in_transactions(self, records: Sequence[OutgoingRecord]) -> None:
        """Abort one transaction and commit another. After a failure, nothing is acknowledged."""
        try:
            producer = self.transactions = self.transactions or self._transactional()
            for abort in (True, False):
                producer.begin_transaction()
                for record in records:
                    producer.produce(record.topic, record.value, record.key)
                producer.flush(deadline(10))
                if abort:
                    producer.abort_transaction(10)
                    self.aborted += len(records)
                else:
                    producer.commit_transaction(10)
        except KafkaException:
            self.transactions = None
            return
        for record in records:
            self._acknowledge("in transactions", record.topic, [record.value])

    def _transactional(self) -> Producer:
        limits = {"transactional.id": "soak", "transaction.timeout.ms": 5_000, "message.timeout.ms": 5_000}
        producer = Producer({**self.settings.kafka(), **limits, "log_level": 0})
        producer.init_transactions(5)
        return producer

    def _send_to_collector(self, records: Iterable[OutgoingRecord]) -> None:
        """Post good and bad events. A response is the acknowledgement; without a response, nothing is known."""
        events = [(r.topic, r.value, event) for r in records if (event := parsed(r.value)) is not None]
        try:
            response = self.client.post([event | {"type": topic} for topic, _, event in events])
        except (OSError, HTTPException, json.JSONDecodeError):
            return
        if response.status in {200, 207}:
            for good in response.body["good"]:
                topic, value, _ = events[good["index"]]
                self._acknowledge("through the collector", topic, [value])
        else:
            assert response.status in {422, 429, 503}, (response.status, response.body)

    def _acknowledge(self, way: str, topic: str, values: Iterable[bytes | None]) -> None:
        with self.lock:
            for value in values:
                self.sent[way] += 1
                if (identity := event_id(value)) is not None:
                    self.ids[topic][identity] += 1


def event_id(value: bytes | None) -> str | None:
    found = (parsed(value) or {}).get("event_id")
    return found if isinstance(found, str) else None


def _with_campaign(record: OutgoingRecord, campaign: str | None) -> OutgoingRecord:
    event = parsed(record.value)
    if event is None or campaign is None or record.topic != "page_view":
        return record
    return record._replace(value=json.dumps(event | {CAMPAIGN: campaign}).encode())
