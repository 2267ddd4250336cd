"""How long a notification takes: from Kafka's acknowledgement of an event to the request at a webhook.

Each payment is a match of a pattern rule, and each match is an incident. The webhook is on the loopback interface.
"""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime

from confluent_kafka import KafkaError, KafkaException, Message

import runtime
from bench import streaming
from bench.freshness import percentiles
from bench.row import OURS, Row
from tests.beat import every, first
from tests.beds.world import known
from tests.library.listener import Listener, listening
from tests.scenes.applications import Application
from truelog.log.kafka_producer import make_producer
from truelog.rules import matches, sending
from truelog.storage.database import connect
from truelog.support import timestamps
from truelog.support.settings import Settings

VIEWS = ("matches",)
RATE = 50  # incidents per second

_CHANNEL = "bench"
_RULE = """RULE paid BY customer
PATTERN paid
WITHIN 1 minute
STEP paid ON payment WHERE verb = 'succeeded'
"""
_BEAT_SECONDS = 0.01
_LOOK_SECONDS = 0.1
_WARM_SECONDS = 20.0
_PATIENCE_SECONDS = 180.0


@dataclass
class Payments:
    """Payments at a constant rate, and when each was acknowledged, by its customer."""

    settings: Settings
    acknowledged: dict[str, float] = field(default_factory=dict)

    def send(self, begin: int, seconds: float) -> int:
        """Send the payments from this number on, and return the number of the next one."""
        kafka, began, sent = make_producer(self.settings), time.time(), 0
        for now in every(_BEAT_SECONDS, within=seconds + _PATIENCE_SECONDS, what="payments"):
            due = min(int((now - began) * RATE), int(seconds * RATE))
            for number in range(begin + sent, begin + due):
                kafka.produce("payment", _payment(number), f"c{number}", on_delivery=self._acknowledge)
            sent = due
            kafka.poll(0)
            if sent == int(seconds * RATE):
                break
        kafka.flush()
        return begin + sent

    def _acknowledge(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            raise KafkaException(error)
        self.acknowledged[(message.key() or b"").decode()] = time.time()


def _payment(number: int) -> bytes:
    payment = {"event_id": f"p{number}", "occurred_at": timestamps.to_text(datetime.now(UTC)), "amount": 1}
    return json.dumps(payment | {"customer_id": f"c{number}", "order_id": f"o{number}", "verb": "succeeded"}).encode()


@contextmanager
def told(settings: Settings) -> Iterator[tuple[Settings, Listener]]:
    """The services `commands` and `notifier`, whose channel is a webhook of this process."""
    with listening() as listener:
        channels = {_CHANNEL: {"kind": "webhook", "url": listener.url}}
        with known(settings, notification_channels=channels) as changed:
            runtime.up(changed, ["commands", "notifier"], tethered=True)
            yield changed, listener


def run(settings: Settings, listener: Listener, application: Application, seconds: float) -> Row:
    """Measure incidents at a constant rate. A stream that runs the view `matches` must have been started."""
    with connect(settings, autocommit=True) as connection:

        def shows(query: str) -> bool:
            streaming.require_running(application)
            return bool(connection.execute(query.encode()).fetchall())

        publishes = "SELECT FROM truelog.published_place WHERE view = 'matches'"
        first(_LOOK_SECONDS, lambda: shows(publishes), within=_PATIENCE_SECONDS, what="the view `matches`")
        sending.send(settings, sending.SET, matches.load(settings, "matches").sources, definition=_RULE)
        notified = {"kind": "match", "subject": "paid", "channel": _CHANNEL, "template": "$entity_id"}
        sending.decide(settings, sending.SET_NOTIFICATION, notification="paid", window_seconds=3_600, **notified)
        read = "SELECT FROM truelog.notification_place WHERE view = 'matches'"
        first(_LOOK_SECONDS, lambda: shows(read), within=_PATIENCE_SECONDS, what="the notifier's first look")
    payments = Payments(settings)
    warm = payments.send(0, _WARM_SECONDS)
    end = payments.send(warm, seconds)
    first(_LOOK_SECONDS, lambda: len(listener.taken) >= end, within=_PATIENCE_SECONDS, what="all notifications")
    reached = dict[str, float]()
    for at, notification in zip(listener.times, listener.taken, strict=True):
        reached.setdefault(notification["row"]["entity_id"], at)
    ordered = sorted(reached[each] - payments.acknowledged[each] for each in (f"c{n}" for n in range(warm, end)))
    return Row(
        "notifications of matches",
        OURS,
        RATE,
        "alone",
        f"acknowledged to the webhook's request, {len(ordered):,} incidents",
        more=percentiles(ordered),
    )
