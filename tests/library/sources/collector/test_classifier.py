"""Good and bad events: the classifier agrees with the decoder, and gives each bad event a field and a reason."""

import base64
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.library.hostile import GOOD, thing
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
from truelog.erasure.dead_letter import DEAD_LETTER
from truelog.sources.collector.classifier import ClassifiedRecord
from truelog.sources.collector.parser import split_document, split_lines
from truelog.support.errors import RequestRefused

CART = typed(GOOD[:-1] + b',"cart_id":"c","visitor_id":"v","verb":"added","product":"lamp"}').replace(
    b"thing", b"cart_event"
)
SENDABLE = ", ".join(sorted(name for name, each in TYPES.items() if not each.topic.internal))


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
        (CART.replace(b"added", b"Added"), "verb", "Input should be 'added', 'quantity_changed', 'removed' or"),
        (CART, "quantity", "missing, which an event needs if verb is added or quantity_changed"),
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


def test_the_dead_letter_is_an_internal_event_type() -> None:
    assert TYPES[DEAD_LETTER].topic.internal


def refused(status: int, reason: str) -> "pytest.RaisesExc[RequestRefused]":
    return pytest.raises(RequestRefused, match=reason, check=lambda error: error.status == status)


def test_an_array_is_counted_and_measured_before_any_event_is_classified(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(CLASSIFIER), "_record", lambda *_: pytest.fail("an event was classified"))
    with refused(413, "more than 1000 events"):
        CLASSIFIER.classify(split_document(b"[" + b"1," * 1000 + b"1]", 1000), RECEIPT)
    with refused(413, "event 1 has more than 200000 bytes"):
        CLASSIFIER.classify(split_document(b'[1,"' + b"x" * 200_000 + b'"]', 1000), RECEIPT)


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
