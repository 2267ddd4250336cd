"""Replays without services: a replayed event is the event that the collector would have written."""

import base64
import json

import pytest
from hypothesis import given, settings

from tests.library.posted import RECEIPT, REPEATABLE, TYPES, decoded, posted
from truelog.dead_letters.replay import judge
from truelog.dead_letters.store import Coordinates, DeadLetter, LetterFilter, cursor, parse_cursor
from truelog.schema.loading.events import load_events
from truelog.sources.collector.classifier import ClassifiedRecord, Defect, EventClassifier
from truelog.sources.collector.parser import parse_event
from truelog.support.errors import BadInput

PRESENT = EventClassifier(TYPES, max_bytes=200_000)
PAST = EventClassifier(load_events(), max_bytes=200_000)  # before the type `thing` existed


def letter(raw: bytes) -> DeadLetter:
    """The dead letter that the collector wrote when the type `thing` did not exist."""
    [record] = PAST.classify([parse_event(raw)], RECEIPT)
    assert record.defect is not None
    found = json.loads(record.value)
    at = Coordinates("an/id+", 0, 7)
    return DeadLetter(
        at, RECEIPT.time, "thing", found["field"], found["reason"], found["sender"], base64.b64decode(found["raw"])
    )


@settings(REPEATABLE, max_examples=300)
@given(posted)
def test_a_replayed_event_is_what_the_collector_would_have_written(raw: bytes) -> None:
    if len(raw) > PRESENT.max_bytes:
        return
    [expected] = PRESENT.classify([parse_event(raw)], RECEIPT)
    found = judge(TYPES, letter(raw))
    if expected.defect is None:
        assert found == expected
        assert decoded(TYPES["thing"], expected.value)["received_at"].to_pylist() == [RECEIPT.time]
    else:
        assert found == expected.defect


def test_an_event_that_sets_its_own_receipt_stays_invalid() -> None:
    raw = b'{"type":"thing","event_id":"e","occurred_at":"2026-11-21T09:59:00Z","text":"t","received_at":null}'
    assert judge(TYPES, letter(raw)) == Defect("received_at", "only the collector sets it; leave it out")


def test_an_array_in_a_dead_letter_is_not_split_into_events() -> None:
    raw = b'[{"type":"thing","event_id":"e","occurred_at":"2026-11-21T09:59:00Z","text":"t"}]'
    assert not isinstance(judge(TYPES, letter(raw)), ClassifiedRecord)


@pytest.mark.parametrize(
    ("chosen", "accepted"),
    [
        (LetterFilter(), True),
        (LetterFilter("thing", "NOT AN event type", RECEIPT.time), True),
        (LetterFilter("thong"), False),
        (LetterFilter(reason="type: not"), True),
        (LetterFilter(reason="duplicate"), False),
        (LetterFilter(since=RECEIPT.time.replace(second=59)), False),
    ],
)
def test_filters(chosen: LetterFilter, accepted: bool) -> None:
    assert chosen.accepts(letter(b'{"type":"thing"}')) is accepted


def test_a_cursor_is_read_as_it_was_written() -> None:
    found = letter(b"")
    assert parse_cursor(cursor(found)) == (found.received_at, found.at)
    for wrong in ("", "x", ",,0,0", cursor(found) + "x", cursor(found) + ",1"):
        with pytest.raises(BadInput):
            parse_cursor(wrong)
