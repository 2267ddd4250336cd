"""A click that was rejected because its type did not exist yet. Now it is valid."""

import json
from datetime import UTC, datetime

from confluent_kafka import Producer

from tests.deadline import deadline
from truelog.control import event_registry
from truelog.erasure.dead_letter import DEAD_LETTER
from truelog.log import topics
from truelog.schema.loading.events import load_events
from truelog.sources.collector.classifier import EventClassifier, Receipt
from truelog.sources.collector.parser import parse_event
from truelog.support.settings import KafkaUser, Settings

_CLICK = {
    "type": "click",
    "event_id": "c",
    "occurred_at": "2026-11-01T00:00:00Z",
    **dict.fromkeys(("visitor_id", "search_id", "url"), "x"),
}


def reject_click(settings: Settings) -> None:
    types = load_events()
    early = EventClassifier({DEAD_LETTER: types[DEAD_LETTER]}, 10_000)
    [letter] = early.classify([parse_event(json.dumps(_CLICK).encode())], Receipt(datetime.now(UTC), "shop"))
    producer = Producer(settings.kafka(KafkaUser.COLLECTOR))
    producer.produce(DEAD_LETTER, letter.value, partition=1)
    assert producer.flush(deadline(30)) == 0
    topics.sync_topics(settings, {"click": types["click"]})
    event_registry.register(settings, types["click"])
