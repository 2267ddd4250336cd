"""Records of hostile bytes: dead letters in the log, and archived records of three topics."""

import json
import random
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from confluent_kafka import Producer

from tests.builders.event_types import an_event_type
from tests.deadline import deadline
from tests.library.archive_files import records_of, written
from truelog.archive.commit import Append, commit
from truelog.archive.table import ensure_table, identifier, open_catalog
from truelog.control import event_registry
from truelog.erasure.dead_letter import DEAD_LETTER
from truelog.log import topics
from truelog.schema.loading.events import load_events
from truelog.sources.collector.classifier import ClassifiedRecord, EventClassifier, Receipt
from truelog.sources.collector.parser import parse_event
from truelog.storage.database import connect
from truelog.support.settings import KafkaUser, Settings

PAGE_VIEW, PAYMENT = "page_view", "payment"
_WRONG = {"type": PAGE_VIEW, "event_id": "e"}
# Depths around the limit of Python's parser, at which the parser and the encoder may disagree.
_DEEP = [b'{"type": "page_view", "url": %b1%b}' % (b"[" * n, b"]" * n) for n in (250, *range(900, 1000, 9), 100_000)]
DESIGNED = (
    b'{"type": "page_view", "event_id": "\\ud800"}',
    b'{"type": "\\udfff", "event_id": "e", "\\ud800": "\\ud800"}',
    b'{"type": "a\\u0000b", "event_id": "\\u0000", "\\u0000": 1}',
    b'{"type": "page_view", "event_id": "\xed\xa0\x80"}',
    b'{"type": "page_view", "event_id": NaN, "url": 1e999, "n": -Infinity}',
    b'{"type": "page_view", "event_id": %b}' % (b"9" * 5_000),
    b'{"type": "page_view", "event_id": "e", "occurred_at": "9999-12-31T23:59:59-23:59"}',
    b'{"type": ["page_view"], "event_id": {"\\ud800": [null]}}',
    json.dumps(_WRONG | {"url": "\u202e" + "x" * 300_000}).encode(),
    b"[]",
    b"null",
    b"\x00",
    *_DEEP,
)


def hostile_values(seed: int, number: int) -> tuple[bytes, ...]:
    """The designed values, random bytes, and designed values with a few random bytes in them."""
    chosen = random.Random(seed)
    noise = [chosen.randbytes(chosen.randrange(200)) for _ in range(number)]
    short = [each for each in DESIGNED if len(each) < 500]
    for _ in range(number):
        torn = bytearray(chosen.choice(short))
        for _ in range(3):
            torn[chosen.randrange(len(torn))] = chosen.randrange(256)
        noise.append(bytes(torn))
    return (*DESIGNED, *noise)


def store_hostile(settings: Settings, values: tuple[bytes, ...]) -> int:
    """Store the values as archived page views and payments, and as dead letters in the log and in the archive.

    Return the number of dead letters. The first half of them is archived.
    """
    rejected = reject_all(values)
    for topic in (PAGE_VIEW, PAYMENT):
        archive_values(settings, topic, "first-life", values)
    store_letters(settings, rejected, archived=len(rejected) // 2)
    return len(rejected)


def store_letters(settings: Settings, letters: Sequence[bytes], *, archived: int) -> None:
    """Append these records to the topic of dead letters, and archive the first of them."""
    event_registry.register(settings, load_events()[DEAD_LETTER])
    producer = Producer(settings.kafka(KafkaUser.COLLECTOR))
    for each in letters:
        producer.produce(DEAD_LETTER, each, partition=0)
    assert producer.flush(deadline(30)) == 0
    log_id = topics.topic_ids(settings, [DEAD_LETTER])[DEAD_LETTER]
    archive_values(settings, DEAD_LETTER, log_id, letters[:archived])


def reject_all(values: Iterable[bytes]) -> list[bytes]:
    """The dead letters that the collector makes of the invalid ones of these values."""
    classifier = EventClassifier(load_events(), 1_000_000)
    receipt = Receipt(datetime.now(UTC), "shop \ud800".encode("utf-8", "backslashreplace").decode())
    records = [each for value in values for each in classifier.classify([parse_event(value)], receipt)]
    return [each.value for each in records if isinstance(each, ClassifiedRecord) and each.topic == DEAD_LETTER]


def archive_values(settings: Settings, topic: str, topic_id: str, values: Sequence[bytes]) -> None:
    """Archive these values as the first records of the topic's partition 0."""
    event_type, end = load_events()[topic], len(values)
    with connect(settings, autocommit=True) as connection, open_catalog(settings) as catalog:
        if topic != DEAD_LETTER:
            an_event_type(connection, event_type, topic_id)
        ensure_table(catalog, event_type, topic_id, {0: 0})
        table = catalog.load_table(identifier(topic)).metadata
        files = written(settings, table, records_of(topic, values), topic)
        data = tuple(each.data_file for each in files)
        commit(catalog, Append(topic, topic_id, {0: 0}, {0: end}, {0: end}, data))
