"""The collector without services: body limits, splitting, and agreement with the decoder on good events."""

import asyncio
import base64
import gzip
import json
from collections.abc import AsyncIterator

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.library.hostile import GOOD
from tests.library.posted import (
    CLASSIFIER,
    EVENT,
    MOST,
    POSTED,
    RECEIPT,
    REPEATABLE,
    TYPES,
    classify,
    decoded,
    defect,
    posted,
    typed,
)
from truelog.ingest.body_reader import CapacityLimit, read_body
from truelog.ingest.event_classifier import DEAD_LETTER, ClassifiedRecord
from truelog.ingest.event_parser import parse_event, split_document, split_lines
from truelog.support.errors import RequestRefused

SENDABLE = ", ".join(sorted(name for name, each in TYPES.items() if not each.topic.internal))


# --- agreement ----------------------------------------------------------------------------------------


def require_agreement(records: list[ClassifiedRecord]) -> None:
    """Require that the stream accepts good events, and dead letters as events of their own type."""
    for name in {record.topic for record in records}:
        rows = decoded(TYPES[name], *(record.value for record in records if record.topic == name))
        assert rows["invalid"].null_count == len(rows), (name, rows["invalid"])
        assert set(rows["received_at"].to_pylist()) == {RECEIPT.time}


@settings(REPEATABLE, max_examples=400)
@given(posted)
def test_the_decoder_accepts_what_the_collector_accepts(raw: bytes) -> None:
    require_agreement(classify(raw))


def test_hostile_events_become_events_or_dead_letters() -> None:
    records = [record for raw in POSTED if len(raw) < CLASSIFIER.max_bytes for record in classify(raw)]
    good = [record for record in records if record.defect is None]
    assert len(good) > 20
    assert len(records) - len(good) > 60
    require_agreement(records)


def test_a_good_event_is_stored_unchanged_except_for_its_receipt() -> None:
    raw = EVENT[:-1] + b', "unknown": [1.10, {"a": "\\u00e9"}]} '
    [record] = classify(b" \n" + raw)
    assert record.topic == "thing"
    assert record.key == b"t"
    assert record.value == b'{"received_at":"2026-11-21T10:00:00.123000Z",' + raw[1:]


@settings(REPEATABLE, max_examples=200)
@given(st.lists(posted, max_size=4))
def test_a_dead_letter_holds_the_posted_bytes(several: list[bytes]) -> None:
    events = list(split_lines(b"\n".join(several), MOST))
    for event, record in zip(events, CLASSIFIER.classify(events, RECEIPT), strict=True):
        if record.defect is not None:
            letter = json.loads(record.value)
            assert base64.b64decode(letter["raw"]) == event.raw
            assert (letter["field"], letter["reason"]) == (record.defect.field, record.defect.reason)
            assert letter["sender"] == "tester"


# --- bad events ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "field", "reason"),
    [
        (b"", "record", "not JSON: Expecting value at character 0"),
        (b"nonsense", "record", "not JSON: Expecting value at character 0"),
        (b"5", "record", "not a JSON object"),
        (b"\xff", "record", "not JSON: Expecting value at character 0"),
        (EVENT + b" {}", "record", f"not JSON: Extra data at character {len(EVENT)}"),
        (GOOD, "type", "missing; it must name the event type"),
        (EVENT.replace(b"thing", b"thong"), "type", f"not an event type; use one of {SENDABLE}"),
        (EVENT.replace(b'"thing"', b'["thing"]'), "type", f"not an event type; use one of {SENDABLE}"),
        (EVENT.replace(b"thing", b"ticks"), "type", "only the platform writes ticks"),
        (EVENT.replace(b"thing", b"dead_letter"), "type", "only the platform writes dead_letter"),
        (typed(GOOD[:-1] + b',"received_at":null}'), "received_at", "only the collector sets it; leave it out"),
        (typed(GOOD[:-1] + b',"text":"u"}'), "text", "a duplicate field"),
        (typed(GOOD[:-1] + b',"x":1e400}'), "record", "a number outside the range of float"),
        (typed(GOOD[:-1] + b',"x":"\x00"}'), "record", "Invalid JSON: control character"),
        (typed(GOOD.replace(b'"text":"t"', b'"text":5')), "text", "Input should be a valid string"),
        (EVENT.replace(b"09:59:00", b"10:05:01"), "event_time", "more than 300 s after its receipt"),
        (EVENT.replace(b"2026-11-21", b"9999-12-31"), "event_time", "more than 300 s after its receipt"),
        (
            typed(GOOD[:-1] + b',"sent_at":"0001-01-01T00:00:00Z"}').replace(b"2026-11-21T09", b"9999-12-31T09"),
            "event_time",
            "outside the years 1 to 9999",
        ),
    ],
)
def test_a_bad_event_has_its_field_and_reason(raw: bytes, field: str, reason: str) -> None:
    found = defect(raw)
    assert found[0] == field
    assert found[1].startswith(reason)


def test_the_error_of_a_devices_clock_is_corrected_before_the_time_is_checked() -> None:
    ahead = typed(GOOD[:-1] + b',"sent_at":"2026-11-22T10:00:00Z"}').replace(b"2026-11-21T09:59", b"2026-11-22T09:59")
    [record] = classify(ahead)
    assert record.defect is None


def test_a_body_with_too_many_or_too_long_events_is_rejected() -> None:
    with pytest.raises(RequestRefused, match="more than 1000 events"):
        CLASSIFIER.classify(split_document(b"[" + b"1," * 1000 + b"1]", MOST), RECEIPT)
    with pytest.raises(RequestRefused, match="event 1 has more than 200000 bytes"):
        CLASSIFIER.classify(split_document(b'[1,"' + b"x" * 200_000 + b'"]', MOST), RECEIPT)


# --- splitting --------------------------------------------------------------------------------------------


@settings(REPEATABLE, max_examples=300)
@given(st.lists(posted, max_size=4))
@example([EVENT, b"", EVENT])
@example([EVENT, b"]", EVENT])
def test_no_byte_of_an_array_is_lost(several: list[bytes]) -> None:
    """The body contains the event bytes in order, with only punctuation between them."""
    body = b"[" + b",".join(several) + b"]"
    at = 0
    for event in split_document(body, MOST):
        begin = body.index(event.raw, at)
        assert set(body[at:begin]) <= set(b"[], \t\r\n")
        at = begin + len(event.raw)
    assert set(body[at:]) <= set(b"[], \t\r\n")


@settings(REPEATABLE, max_examples=200)
@given(st.lists(posted.filter(lambda raw: b"\n" not in raw and raw.strip(b" \t\r")), max_size=5))
def test_splitting_lines_equals_splitting_each_line_alone(several: list[bytes]) -> None:
    alone = [event for raw in several for event in split_lines(raw, MOST)]
    assert list(split_lines(b"\r\n".join(several), MOST)) == alone
    assert len(alone) == len(several)


COMPLETE = [raw for raw in POSTED if raw.startswith(b'{"type"') and parse_event(raw).defect is None]


@settings(REPEATABLE, max_examples=200)
@given(st.lists(st.sampled_from(COMPLETE), max_size=5))
def test_splitting_an_array_of_complete_events_equals_splitting_each_alone(several: list[bytes]) -> None:
    body = b" [ " + b" , ".join(several) + b" ] "
    assert list(split_document(body, MOST)) == [event for raw in several for event in split_document(raw.strip(), MOST)]


@pytest.mark.parametrize(
    ("body", "raw"),
    [
        (b"[]", []),
        (b" [ ] ", []),
        (b"[] x", [b"x"]),
        (b"[1, 2", [b"1", b"2", b""]),
        (b"[1 2]", [b"1", b"2]"]),
        (b"[1, 2,]", [b"1", b"2", b"]"]),
        (b"[1, {\xff}, 3]", [b"1", b"{\xff}, 3]"]),
        (b'["\xff", "\x00"]', [b'"\xff"', b'"\x00"']),
        (b"[1], [2]", [b"1", b", [2]"]),
        (b"[", [b""]),
        (b"[" * 5000, [b"[" * 4999]),
    ],
)
def test_the_rest_of_a_body_that_cannot_be_split_further_is_one_event(body: bytes, raw: list[bytes]) -> None:
    assert [event.raw for event in split_document(body, MOST)] == raw


# --- bodies -----------------------------------------------------------------------------------------------


def body(sent: bytes, encoding: str = "", limit: int = 1000, chunk: int = 7) -> bytes:
    async def chunks() -> AsyncIterator[bytes]:
        for start in range(0, len(sent), chunk):
            yield sent[start : start + chunk]

    with CapacityLimit(1, 10**6, 1, 10**6).admit("key") as claim:
        return asyncio.run(read_body(chunks(), encoding, limit, claim))


def status(*args: object) -> int:
    with pytest.raises(RequestRefused) as raised:
        body(*args)  # type: ignore[arg-type]
    return raised.value.status


@settings(REPEATABLE, max_examples=50)
@given(st.binary(max_size=1000), st.integers(1, 1000))
def test_a_gzipped_body_gives_the_same_bytes(sent: bytes, chunk: int) -> None:
    assert body(gzip.compress(sent), "gzip", 2000, chunk) == body(sent) == sent


def test_bodies_that_are_too_large_are_rejected() -> None:
    assert body(b"x" * 1000) == b"x" * 1000
    assert status(b"x" * 1001) == 413
    assert status(gzip.compress(b"x" * 1001), "gzip") == 413
    empty_blocks = b"\x00\x00\x00\xff\xff" * 300  # deflate blocks without data
    assert status(gzip.compress(b"")[:10] + empty_blocks, "gzip") == 413


def test_a_decompression_bomb_is_never_decompressed() -> None:
    bomb = gzip.compress(b"\x00" * 50_000_000)
    capacity = CapacityLimit(1, 2_000, 1, 2_000)

    async def chunks() -> AsyncIterator[bytes]:
        yield bomb

    with capacity.admit("key") as claim, pytest.raises(RequestRefused) as raised:
        asyncio.run(read_body(chunks(), "gzip", 1000, claim))
    assert raised.value.status == 413
    assert claim.size <= 1000


def test_invalid_encodings_are_rejected() -> None:
    compressed = gzip.compress(b"some text")
    assert status(b"no gzip", "gzip") == 400
    assert status(compressed[:-1], "gzip") == 400
    assert status(compressed + b"x", "gzip") == 400
    assert status(compressed + compressed, "gzip", 1000, 1000) == 400
    assert status(b"x", "br") == 415


def test_requests_beyond_the_capacity_are_rejected_until_others_end() -> None:
    capacity = CapacityLimit(requests=2, size=10, key_requests=2, key_size=10)
    with capacity.admit("a") as first, capacity.admit("b") as second:
        first.acquire(6)
        with pytest.raises(RequestRefused) as raised:
            second.acquire(5)
        assert (raised.value.status, raised.value.retry_after) == (429, 1)
        second.acquire(4)
        with pytest.raises(RequestRefused), capacity.admit("c"):
            pass
    with capacity.admit("c") as third:
        third.acquire(10)


def test_the_dead_letter_is_an_internal_event_type() -> None:
    assert TYPES[DEAD_LETTER].topic.internal
