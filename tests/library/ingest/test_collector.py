"""The collector without its services: bodies bounded and told apart, and what it takes in, the stream can read."""

import asyncio
import base64
import gzip
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.library.hostile import GOOD, HOSTILE, THING
from tests.library.schema.test_decode import mutilated
from truelog.ingest.body_reader import CapacityLimit, read_body
from truelog.ingest.body_splitter import split_document, split_lines
from truelog.ingest.event_classifier import DEAD_LETTER, ClassifiedRecord, EventClassifier, Receipt
from truelog.schema.decode import decode
from truelog.schema.event import FUTURE_LIMIT, EventType, load_events
from truelog.support.errors import RequestRefused

REPEATABLE = settings(derandomize=True, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])
TYPES = {"thing": THING, **load_events()}
INTAKE = EventClassifier(TYPES, most=1000, longest=200_000)
RECEIPT = Receipt(datetime(2026, 11, 21, 10, 0, 0, 123000, tzinfo=UTC), "tester")


def typed(raw: bytes) -> bytes:
    """The same record, naming its type."""
    return raw.replace(b'{"event_id"', b'{"type":"thing","event_id"', 1)


EVENT = typed(GOOD)
POSTED = [typed(raw) for raw in HOSTILE]
posted = st.one_of(st.sampled_from(POSTED), mutilated().map(typed))


def taken(*raw: bytes) -> list[ClassifiedRecord]:
    """Each posted alone."""
    return [record for each in raw for record in INTAKE.records(split_document(each), RECEIPT)]


def flaw(raw: bytes) -> tuple[str, str]:
    [record] = taken(raw)
    assert record.flaw is not None
    return record.flaw.field, record.flaw.reason


def decoded(event_type: EventType, *values: bytes) -> pa.RecordBatch:
    """As the stream reads them; the broker's time is the earliest that it can be."""
    times = pa.array([RECEIPT.time] * len(values), pa.timestamp("us", "UTC"))
    return decode(event_type, pa.array(values, pa.binary()), times, FUTURE_LIMIT)


# --- agreement ----------------------------------------------------------------------------------------


def require_agreement(records: list[ClassifiedRecord]) -> None:
    """What was taken in is an event to the stream too, and a dead letter is one of its own type."""
    for name in {record.topic for record in records}:
        read = decoded(TYPES[name], *(record.value for record in records if record.topic == name))
        assert read["invalid"].null_count == len(read), (name, read["invalid"])
        assert set(read["received_at"].to_pylist()) == {RECEIPT.time}


@settings(REPEATABLE, max_examples=400)
@given(posted)
def test_what_the_collector_accepts_decode_accepts(raw: bytes) -> None:
    require_agreement(taken(raw))


def test_hostile_events_are_taken_or_kept() -> None:
    records = [record for raw in POSTED if len(raw) < INTAKE.longest for record in taken(raw)]
    good = [record for record in records if record.flaw is None]
    assert len(good) > 20
    assert len(records) - len(good) > 60
    require_agreement(records)


def test_a_good_event_is_kept_as_it_came() -> None:
    raw = EVENT[:-1] + b', "unknown": [1.10, {"a": "\\u00e9"}]} '
    [record] = taken(b" \n" + raw)
    assert record.topic == "thing"
    assert record.key == b"t"
    assert record.value == b'{"received_at":"2026-11-21T10:00:00.123000Z",' + raw[1:]


@settings(REPEATABLE, max_examples=200)
@given(st.lists(posted, max_size=4))
def test_a_dead_letter_holds_what_was_posted_byte_for_byte(several: list[bytes]) -> None:
    pieces = list(split_lines(b"\n".join(several)))
    for piece, record in zip(pieces, INTAKE.records(pieces, RECEIPT), strict=True):
        if record.flaw is not None:
            letter = json.loads(record.value)
            assert base64.b64decode(letter["raw"]) == piece.raw
            assert (letter["field"], letter["reason"]) == (record.flaw.field, record.flaw.reason)
            assert letter["sender"] == "tester"


# --- what is refused, and why ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "field", "reason"),
    [
        (b"", "record", "not JSON: Expecting value at character 0"),
        (b"nonsense", "record", "not JSON: Expecting value at character 0"),
        (b"5", "record", "not a JSON object"),
        (b"\xff", "record", "not JSON: Expecting value at character 0"),
        (EVENT + b" {}", "record", f"not JSON: Extra data at character {len(EVENT)}"),
        (GOOD, "type", "missing; it names the event type"),
        (EVENT.replace(b"thing", b"thong"), "type", "no event type; there are click, page_view, search, thing"),
        (EVENT.replace(b'"thing"', b'["thing"]'), "type", "no event type; there are click, page_view, search, thing"),
        (EVENT.replace(b"thing", b"ticks"), "type", "only the platform writes ticks"),
        (EVENT.replace(b"thing", b"dead_letter"), "type", "only the platform writes dead_letter"),
        (typed(GOOD[:-1] + b',"received_at":null}'), "received_at", "the collector says when it received an event"),
        (typed(GOOD[:-1] + b',"text":"u"}'), "text", "a duplicate field"),
        (typed(GOOD[:-1] + b',"x":1e400}'), "record", "a number outside the range of float"),
        (typed(GOOD[:-1] + b',"x":[-Infinity]}'), "record", "not JSON: -Infinity is no number"),
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
def test_a_bad_event_is_told_where_and_why(raw: bytes, field: str, reason: str) -> None:
    told = flaw(raw)
    assert told[0] == field
    assert told[1].startswith(reason)


def test_a_device_whose_clock_is_wrong_is_corrected_before_it_is_judged() -> None:
    ahead = typed(GOOD[:-1] + b',"sent_at":"2026-11-22T10:00:00Z"}').replace(b"2026-11-21T09:59", b"2026-11-22T09:59")
    [record] = taken(ahead)
    assert record.flaw is None


def test_too_many_and_too_long_are_refused_whole() -> None:
    with pytest.raises(RequestRefused, match="more than 1000 events"):
        INTAKE.records(split_document(b"[" + b"1," * 1000 + b"1]"), RECEIPT)
    with pytest.raises(RequestRefused, match="event 1 has more than 200000 bytes"):
        INTAKE.records(split_document(b'[1,"' + b"x" * 200_000 + b'"]'), RECEIPT)


# --- told apart -------------------------------------------------------------------------------------------


@settings(REPEATABLE, max_examples=300)
@given(st.lists(posted, max_size=4))
@example([EVENT, b"", EVENT])
@example([EVENT, b"]", EVENT])
def test_no_byte_of_an_array_is_lost(several: list[bytes]) -> None:
    """The pieces' bytes stand in the body in order; nothing but punctuation is between them."""
    body = b"[" + b",".join(several) + b"]"
    at = 0
    for piece in split_document(body):
        begin = body.index(piece.raw, at)
        assert set(body[at:begin]) <= set(b"[], \t\r\n")
        at = begin + len(piece.raw)
    assert set(body[at:]) <= set(b"[], \t\r\n")


@settings(REPEATABLE, max_examples=200)
@given(st.lists(posted.filter(lambda raw: b"\n" not in raw and raw.strip(b" \t\r")), max_size=5))
def test_lines_are_what_each_is_alone(several: list[bytes]) -> None:
    alone = [piece for raw in several for piece in split_lines(raw)]
    assert list(split_lines(b"\r\n".join(several))) == alone
    assert len(alone) == len(several)


WHOLE = [raw for raw in POSTED if raw.startswith(b'{"type"') and next(iter(split_document(raw))).flaw is None]


@settings(REPEATABLE, max_examples=200)
@given(st.lists(st.sampled_from(WHOLE), max_size=5))
def test_an_array_of_whole_events_is_what_each_is_alone(several: list[bytes]) -> None:
    body = b" [ " + b" , ".join(several) + b" ] "
    assert list(split_document(body)) == [piece for raw in several for piece in split_document(raw.strip())]


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
def test_from_where_it_cannot_be_told_apart_the_rest_is_one_piece(body: bytes, raw: list[bytes]) -> None:
    assert [piece.raw for piece in split_document(body)] == raw


# --- bodies -----------------------------------------------------------------------------------------------


def body(sent: bytes, encoding: str = "", limit: int = 1000, chunk: int = 7) -> bytes:
    async def chunks() -> AsyncIterator[bytes]:
        for start in range(0, len(sent), chunk):
            yield sent[start : start + chunk]

    with CapacityLimit(1, 10**6).visit() as visit:
        return asyncio.run(read_body(chunks(), encoding, limit, visit))


def status(*args: object) -> int:
    with pytest.raises(RequestRefused) as refused:
        body(*args)  # type: ignore[arg-type]
    return refused.value.status


@settings(REPEATABLE, max_examples=50)
@given(st.binary(max_size=1000), st.integers(1, 1000))
def test_a_gzipped_body_is_the_body(sent: bytes, chunk: int) -> None:
    assert body(gzip.compress(sent), "gzip", 2000, chunk) == body(sent) == sent


def test_bodies_out_of_bounds_are_refused() -> None:
    assert body(b"x" * 1000) == b"x" * 1000
    assert status(b"x" * 1001) == 413
    assert status(gzip.compress(b"x" * 1001), "gzip") == 413
    nothing = b"\x00\x00\x00\xff\xff" * 300  # blocks of deflate that hold no byte
    assert status(gzip.compress(b"")[:10] + nothing, "gzip") == 413


def test_a_bomb_is_never_unpacked() -> None:
    bomb = gzip.compress(b"\x00" * 50_000_000)
    room = CapacityLimit(1, 2_000)

    async def chunks() -> AsyncIterator[bytes]:
        yield bomb

    with room.visit() as visit, pytest.raises(RequestRefused) as refused:
        asyncio.run(read_body(chunks(), "gzip", 1000, visit))
    assert refused.value.status == 413
    assert visit.taken <= 1000


def test_what_is_no_gzip_is_refused() -> None:
    packed = gzip.compress(b"some text")
    assert status(b"no gzip", "gzip") == 400
    assert status(packed[:-1], "gzip") == 400
    assert status(packed + b"x", "gzip") == 400
    assert status(packed + packed, "gzip", 1000, 1000) == 400
    assert status(b"x", "br") == 415


def test_a_full_room_turns_away_and_is_free_again() -> None:
    room = CapacityLimit(requests=2, size=10)
    with room.visit() as first, room.visit() as second:
        first.take(6)
        with pytest.raises(RequestRefused) as refused:
            second.take(5)
        assert (refused.value.status, refused.value.retry_after) == (429, 1)
        second.take(4)
        with pytest.raises(RequestRefused), room.visit():
            pass
    with room.visit() as again:
        again.take(10)


def test_the_dead_letter_is_a_declared_event_of_the_platforms_own() -> None:
    assert TYPES[DEAD_LETTER].topic.internal
