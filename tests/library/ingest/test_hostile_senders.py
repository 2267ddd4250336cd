"""What one hostile sender can cost the others: pieces are counted first, and each key has its own limits."""

import asyncio
import gzip
import time
from collections.abc import AsyncIterator

import pytest

from tests.library.hostile import thing
from tests.library.posted import CLASSIFIER, EVENT, RECEIPT, TYPES, classify, decoded, defect, typed
from truelog.ingest import event_parser
from truelog.ingest.body_reader import CapacityLimit, read_body
from truelog.ingest.dead_letter_limit import DeadLetterLimit
from truelog.ingest.event_parser import split_document, split_lines
from truelog.support.errors import RequestRefused


def refused(status: int, reason: str) -> "pytest.RaisesExc[RequestRefused]":
    return pytest.raises(RequestRefused, match=reason, check=lambda error: error.status == status)


# --- counting comes first ---------------------------------------------------------------------------------


def test_lines_are_counted_before_any_line_is_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_parser._Parser, "parse", lambda *_: pytest.fail("a line was parsed"))
    with refused(413, "more than 1000 events"):
        list(split_lines(b"x\n" * 1001, 1000))


def test_an_array_is_counted_and_measured_before_any_event_is_classified(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(CLASSIFIER), "_record", lambda *_: pytest.fail("an event was classified"))
    with refused(413, "more than 1000 events"):
        CLASSIFIER.classify(split_document(b"[" + b"1," * 1000 + b"1]", 1000), RECEIPT)
    with refused(413, "event 1 has more than 200000 bytes"):
        CLASSIFIER.classify(split_document(b'[1,"' + b"x" * 200_000 + b'"]', 1000), RECEIPT)


@pytest.mark.parametrize("blank", [b"\n", b" \t\r\n", b" " * 1000 + b"\n"])
def test_blank_lines_are_not_events(blank: bytes) -> None:
    body = blank * 2000 + b" 1 \r\n" + blank * 2000 + b"\t2"
    assert [event.raw for event in split_lines(body, 2)] == [b" 1 ", b"\t2"]


def test_a_duplicate_among_many_names_is_found_without_comparing_all_pairs() -> None:
    """Comparing all pairs of 40,000 names took 11 s."""
    names = b",".join(b'"a%d":1' % number for number in range(40_000))
    began = time.thread_time()
    [event] = split_document(b"{" + names + b',"a1":2}', 1)
    assert event.defect == ("a1", "a duplicate field")
    assert time.thread_time() - began < 2


# --- a gzip bomb ------------------------------------------------------------------------------------------


def test_a_compressed_body_is_decompressed_in_slices() -> None:
    """Other requests run between two slices. A slice takes less than a millisecond."""
    bomb, steps = gzip.compress(b" " * 4_000_000), 0

    async def read() -> bytes:
        async def chunks() -> AsyncIterator[bytes]:
            yield bomb

        async def count() -> None:
            nonlocal steps
            while True:
                steps += 1
                await asyncio.sleep(0)

        others = asyncio.create_task(count())
        with CapacityLimit(1, 10**7, 1, 10**7).admit("key") as claim:
            body = await read_body(chunks(), "gzip", 4_000_000, claim)
        others.cancel()
        return body

    assert len(asyncio.run(read())) == 4_000_000
    assert steps > 40


# --- limits per key ---------------------------------------------------------------------------------------


def test_one_key_cannot_hold_all_of_the_capacity() -> None:
    capacity = CapacityLimit(requests=4, size=100, key_requests=2, key_size=60)
    with capacity.admit("slow") as first, capacity.admit("slow") as second:
        with refused(429, "this key has too many"), capacity.admit("slow"):
            pass
        first.acquire(50)
        with refused(429, "this key has too many"):
            second.acquire(11)
        with capacity.admit("other") as third:
            third.acquire(50)
            with refused(429, "too many requests in progress"):
                third.acquire(1)
    with capacity.admit("slow") as again:
        again.acquire(60)


def test_dead_letters_are_limited_for_each_key() -> None:
    now = 0.0
    limit = DeadLetterLimit(rate=2.0, burst=10, clock=lambda: now)
    limit.take("flood", 10)
    with pytest.raises(RequestRefused) as raised:
        limit.take("flood", 5)
    assert (raised.value.status, raised.value.retry_after) == (429, 3)  # 2.5 s, rounded up
    limit.take("flood", 0)  # events without a defect always pass
    limit.take("other", 10)
    now = 2.4
    with pytest.raises(RequestRefused):
        limit.take("flood", 5)
    now = 2.5
    limit.take("flood", 5)
    now = 1000.0
    limit.take("flood", 10)
    with pytest.raises(RequestRefused):
        limit.take("flood", 1)


# --- NaN --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity"])
@pytest.mark.parametrize("payload", ['"unknown":{}', '"unknown":[1,{}]', '"unknown":{{"a":{}}}'])
def test_the_collector_and_the_decoder_agree_on_nan_in_an_undeclared_field(payload: str, number: str) -> None:
    raw = thing(payload.format(number))
    assert decoded(TYPES["thing"], raw)["invalid"].to_pylist() == [None]
    [record] = classify(typed(raw))
    assert record.defect is None
    assert decoded(TYPES["thing"], record.value)["invalid"].to_pylist() == [None]


@pytest.mark.parametrize("field", ["text", "number", "amount", "flag", "at", "words"])
def test_nan_in_a_declared_field_is_invalid_for_both(field: str) -> None:
    raw = EVENT[:-1].replace(b'"text":"t"', b'"text":NaN') if field == "text" else typed(thing(f'"{field}":NaN'))[:-1]
    assert decoded(TYPES["thing"], raw + b"}")["invalid"].null_count == 0
    assert defect(raw + b"}")[0] == field
