"""The decoder: other records never affect a record's result, and valid values are decoded unchanged."""

import json
import math
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from tests.library.hostile import ENVELOPE, GOOD, HOSTILE, THING, Thing, mutilated, thing
from truelog.schema.decode import _has_bare_null, decode
from truelog.schema.event import FUTURE_LIMIT, Event, EventType
from truelog.schema.loading.events import load_events
from truelog.schema.record_validation import AMBIGUOUS_REASON

FAR = timedelta(days=4_000_000)
BROKER = datetime(2026, 11, 21, 10, 0, tzinfo=UTC)
REPEATABLE = settings(derandomize=True, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])


PAGE_VIEW = load_events()["page_view"]


records = st.one_of(st.just(GOOD), st.sampled_from(HOSTILE), mutilated(), st.none())


def read(event_type: EventType, *values: bytes | None, limit: timedelta = FUTURE_LIMIT) -> pa.RecordBatch:
    times = pa.array([BROKER] * len(values), pa.timestamp("us", "UTC"))
    return decode(event_type, pa.array(values, pa.binary()), times, limit)


def row(value: bytes | None, event_type: EventType = THING, limit: timedelta = FUTURE_LIMIT) -> dict[str, Any]:
    found: dict[str, Any] = read(event_type, value, limit=limit).to_pylist()[0]
    return found


def alone(event_type: EventType, values: list[bytes | None]) -> pa.RecordBatch:
    return pa.concat_batches([read(event_type, value) for value in values])


# --- the law: decoding a batch equals decoding each record alone --------------------------------------


@settings(REPEATABLE, max_examples=150)
@given(st.lists(records, min_size=1, max_size=8))
def test_decoding_a_batch_equals_decoding_each_record_alone(values: list[bytes | None]) -> None:
    assert read(THING, *values).equals(alone(THING, values))


def test_decoding_all_hostile_records_together_equals_decoding_each_alone() -> None:
    together = read(THING, *HOSTILE)
    together.validate(full=True)
    assert together.num_rows == len(HOSTILE)
    assert together.equals(alone(THING, list(HOSTILE)))


@pytest.mark.parametrize("hostile", HOSTILE, ids=lambda raw: repr(raw[:60]))
def test_a_hostile_record_does_not_affect_other_records(hostile: bytes) -> None:
    others = [thing('"number":1'), hostile, thing('"number":2'), hostile, thing('"number":3')]
    assert read(THING, *others).column("number").to_pylist()[::2] == [1, 2, 3]


@pytest.mark.parametrize(
    "forged",
    [
        [GOOD + thing('"number":666'), b"", thing('"number":3')],  # two objects, none, one: three rows in total
        [GOOD + GOOD + GOOD, GOOD[:-1] + b',"unknown":[', b"{}]}"],  # the last two form one object around a sentinel
        [GOOD[:-1] + b',"unknown":"', b'"}', GOOD + GOOD + GOOD],
    ],
)
def test_a_record_with_several_objects_cannot_replace_another_record(forged: list[bytes]) -> None:
    found = read(THING, *forged)
    assert 666 not in found["number"].to_pylist()
    assert found.equals(alone(THING, list(forged)))


@pytest.mark.parametrize(
    ("raw", "is_bare"),
    [
        (b"{}null", True),
        (b'{"a":"\\"} \r\n\tnull', True),
        (b'{"a":"x"}\n{"b":"} null"} null', True),
        (b'{"a":"} null"}', False),
        (b'{"a":"\\"} null"}', False),
        (b'{"a":null}', False),
        (b'{"a":[{},null]}', False),
    ],
)
def test_a_bare_null_never_reaches_the_parser(raw: bytes, is_bare: bool) -> None:
    assert _has_bare_null(pa.py_buffer(raw)) == is_bare


def test_invalid_records_far_apart_in_a_long_batch() -> None:
    values: list[bytes | None] = [thing(f'"number":{i}') for i in range(2_500)]
    for index in (0, 1_023, 1_024, 2_499):
        values[index] = HOSTILE[index % 7]
    found = read(THING, *values)
    expected = [None if i in (0, 1_023, 1_024, 2_499) else i for i in range(2_500)]
    assert found["number"].to_pylist() == expected
    assert found["invalid"].null_count == 2_496


def test_no_records_give_no_rows() -> None:
    assert read(THING).schema == THING.decoded_schema
    assert read(THING).num_rows == 0


def test_a_slice_of_an_array_is_decoded_at_its_offset() -> None:
    values = pa.array([b"x", GOOD, GOOD, None], pa.binary()).slice(1, 2)
    found = decode(THING, values, pa.array([BROKER] * 2, pa.timestamp("us", "UTC")), FUTURE_LIMIT)
    assert found["number"].to_pylist() == [1, 1]


# --- valid records -------------------------------------------------------------------------------------

instants = st.datetimes(timezones=st.just(UTC))
texts = st.text(max_size=20)
things = st.builds(
    Thing,
    event_id=st.text(min_size=1, max_size=9),
    occurred_at=instants,
    sent_at=st.none() | instants,
    received_at=st.none() | instants,
    text=texts,
    short=st.none() | st.text(min_size=1, max_size=3),
    number=st.none() | st.integers(-(2**63), 2**63 - 1),
    small=st.none() | st.integers(-5, 5),
    flag=st.none() | st.booleans(),
    amount=st.none() | st.floats(allow_nan=False, allow_infinity=False, max_value=1e300),
    at=st.none() | instants,
    words=st.none() | st.lists(texts, max_size=3),
)


def canonical(value: Any) -> Any:
    """A value in the canonical form that columns contain."""
    if isinstance(value, str):
        return value.replace("\0", "\u2400")
    if isinstance(value, list):
        return [canonical(each) for each in value]
    return 0.0 if value == 0.0 and isinstance(value, float) else value


def event_time(model: Event) -> datetime | None:
    """The plain definition of an event's time, or None if the time is outside the calendar."""
    receipt = model.received_at or BROKER
    try:
        return model.occurred_at + (receipt - model.sent_at) if model.sent_at else model.occurred_at
    except OverflowError:
        return None


@settings(REPEATABLE, max_examples=300)
@example([Thing(event_id="e", occurred_at=BROKER, text="", amount=-0.0)])
@given(st.lists(things, min_size=1, max_size=4))
def test_valid_values_are_decoded_unchanged(models: list[Thing]) -> None:
    rows = read(THING, *(model.model_dump_json().encode() for model in models), limit=FAR).to_pylist()
    for model, found in zip(models, rows, strict=True):
        if event_time(model) is None:
            assert found["invalid"] == "event_time: outside the years 1 to 9999"
            continue
        expected = {name: canonical(value) for name, value in model.model_dump().items()}
        assert found == expected | {"event_time": event_time(model), "invalid": None}
        assert repr(found["amount"]) == repr(expected["amount"])  # -0.0 equals 0.0, but its repr differs


def model_accepts(value: bytes | None) -> bool:
    try:
        Thing.model_validate_json(value or b"")
    except ValidationError:
        return False
    return True


def is_ambiguous(value: bytes) -> bool:
    """Whether the record has a duplicate field or a number outside the float range."""
    found = []

    def pairs(members: list[tuple[str, Any]]) -> None:
        found.append(len({key for key, _ in members}) < len(members))

    def number(text: str) -> None:
        found.append(math.isinf(float(text)))

    json.loads(value, object_pairs_hook=pairs, parse_float=number)
    return any(found)


def exceeds_pydantics_limits(value: bytes) -> bool:
    return value.count(b"[") + value.count(b"{") > 150 or re.search(rb"[0-9]{4300}", value) is not None


@settings(REPEATABLE, max_examples=1_000)
@given(st.one_of(mutilated(), st.sampled_from(HOSTILE)))
def test_decoder_and_model_accept_the_same_records(value: bytes) -> None:
    reason = row(value, limit=FAR)["invalid"]
    if model_accepts(value):
        assert reason is None or (reason == AMBIGUOUS_REASON and is_ambiguous(value))
    else:
        assert reason is not None or exceeds_pydantics_limits(value)


# --- examples of reasons and times ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "record: NULL, a tombstone"),
        (b"", "record: Invalid JSON: EOF while parsing a value at line 1 column 0"),
        (b"{}", "event_id: missing"),
        (b"{" + ENVELOPE.encode() + b"}", "text: missing"),
        (b"{" + ENVELOPE.encode() + b',"text":null}', "text: missing"),
        (thing('"small":6'), "small: 6 is above 5"),
        (thing('"small":-6'), "small: -6 is below -5"),
        (thing('"short":"abcd"'), "short: length 4 is above 3"),
        (thing('"words":["a","b","c","d"]'), "words: length 4 is above 3"),
        (thing('"number":"1"'), "number: Input should be a valid integer"),
        (thing('"number":1,"number":2'), AMBIGUOUS_REASON),
        (thing('"number":9223372036854775808'), "number: an integer of more than 64 bits"),
        (GOOD + GOOD, "record: Invalid JSON: trailing characters at line 1 column 76"),
    ],
)
def test_an_invalid_record_gives_its_reason_and_is_otherwise_null(value: bytes | None, reason: str) -> None:
    found = row(value)
    assert found.pop("invalid") == reason
    assert set(found.values()) == {None}


def test_a_page_view_out_of_bounds_is_invalid() -> None:
    record = f'{{{ENVELOPE},"visitor_id":"v","url":"/","status":700}}'.encode()
    assert row(record, PAGE_VIEW)["invalid"] == "status: 700 is above 599"


def timed(**times: str) -> dict[str, Any]:
    return row(json.dumps({"event_id": "e", "text": "t", **times}).encode())


def test_event_time_corrects_the_error_of_the_devices_clock() -> None:
    found = timed(
        occurred_at="2020-01-01T00:00:00Z",
        sent_at="2020-01-01T00:00:10Z",
        received_at="2026-11-21T09:00:10.5Z",
    )
    assert found["event_time"] == datetime(2026, 11, 21, 9, 0, 0, 500_000, tzinfo=UTC)


def test_the_brokers_time_replaces_a_missing_receipt_time() -> None:
    found = timed(occurred_at="2020-01-01T00:00:00Z", sent_at="2020-01-01T00:01:00Z")
    assert found["event_time"] == BROKER - timedelta(minutes=1)
    assert found["received_at"] is None


def test_event_time_is_not_corrected_without_a_sending_time() -> None:
    found = timed(occurred_at="2020-01-01T00:00:00Z", received_at="2026-11-21T09:00:00Z")
    assert found["event_time"] == datetime(2020, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("times", "is_valid"),
    [
        ({"occurred_at": "2026-11-21T10:05:00Z"}, True),
        ({"occurred_at": "2026-11-21T10:05:00.000001Z"}, False),
        ({"occurred_at": "2026-11-21T09:35:00Z", "received_at": "2026-11-21T09:30:00Z"}, True),
        ({"occurred_at": "2026-11-21T09:35:01Z", "received_at": "2026-11-21T09:30:00Z"}, False),
        ({"occurred_at": "2030-01-01T00:00:00Z", "received_at": "2030-01-01T00:00:00Z"}, False),
    ],
)
def test_an_event_from_the_future_is_invalid(times: dict[str, str], is_valid: bool) -> None:
    reason = timed(**times)["invalid"]
    assert reason == (None if is_valid else "event_time: more than 300 s after its receipt")


@pytest.mark.parametrize("others", [[], [b"{"], [GOOD]])
def test_the_year_0_is_invalid_in_every_time_zone_and_in_every_batch(others: list[bytes | None]) -> None:
    year_0 = thing('"at":"0000-12-31T23:59:59-00:01"')  # in UTC, this is in the year 1
    assert not model_accepts(year_0)
    assert (read(THING, year_0, *others).to_pylist()[0]["invalid"] or "").startswith("at: not a time")
