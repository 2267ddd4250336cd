"""The traffic that every engine reads: the valid events of all types that the five views read, at a steady rate.

The same seed makes the same events for each engine, apart from their times. Invalid events are left out, because the
other engines fail on them or skip them without a trace.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from itertools import islice

from confluent_kafka import Producer

from bench.corpus import valid
from bench.five.marks import VIEWS, Marks
from tests.beat import every
from truelog.log.kafka_producer import OutgoingRecord, make_producer
from truelog.support.settings import Settings
from truelog.traffic import generator

TOPICS = ("page_view", "search", "click", "cart_event", "follow", "tweet", "profile")
RATE = 1_000  # events per second
MARKS = 5  # per second and view
WARM_SECONDS = 60.0

_SOCIAL = 0.5  # the share of generated events that are not of the shop
_SHARE = 0.74  # at least this share of all generated events is valid and in these topics
_SEED = 23
_BEAT_SECONDS = 0.01
_PATIENCE_SECONDS = 120.0


@dataclass
class Sent:
    """When the sending began, when the warm-up was over, and when the last event was sent; and the events by then."""

    begin: float = 0.0
    warm: float = 0.0
    end: float = 0.0
    warm_events: int = 0
    events: int = 0


def make_traffic(seconds: float) -> list[OutgoingRecord]:
    """The events of so many seconds."""
    made = generator.generate(seed=_SEED, begin=datetime.now(UTC), rate=RATE / _SHARE, seconds=seconds, social=_SOCIAL)
    chosen = valid(record for record in made if record.topic in TOPICS)
    return list(islice(chosen, round(RATE * seconds)))


def send(settings: Settings, traffic: Sequence[OutgoingRecord], marks: Marks, warm: float, sent: Sent) -> None:
    """Send traffic at the rate. After a warm-up of so many seconds, send marks of all views amid it."""
    kafka, number, marked = make_producer(settings), 0, 0
    sent.begin = time.time()
    for now in every(_BEAT_SECONDS, within=len(traffic) / RATE + _PATIENCE_SECONDS, what="sending"):
        due = min(int((now - sent.begin) * RATE), len(traffic))
        for record in traffic[number:due]:
            kafka.produce(record.topic, record.value, record.key)
        number = due
        if number > warm * RATE:
            if not sent.warm:
                sent.warm, sent.warm_events = now, number
            while now > sent.warm + marked / (MARKS * len(VIEWS)):
                send_mark(kafka, marks, VIEWS[marked % len(VIEWS)])
                marked += 1
        kafka.poll(0)
        if number == len(traffic):
            break
    kafka.flush()
    sent.end, sent.events = time.time(), number


def send_mark(kafka: Producer, marks: Marks, view: str) -> None:
    """Send the records of a new mark of this view."""
    name, records = marks.make(view)
    for record in records:
        kafka.produce(record.topic, record.value, record.key, on_delivery=partial(marks.acknowledge, name))
