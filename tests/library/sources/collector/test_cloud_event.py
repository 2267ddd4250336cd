"""CloudEvents in each mode, written by the library `cloudevents`: the same records, judged as any other event."""

import base64
import hashlib
import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from cloudevents.core.bindings.http import to_binary_event, to_structured_event
from cloudevents.core.v1.event import CloudEvent
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.library.posted import CLASSIFIER, MOST, RECEIPT, REPEATABLE, TYPES, decoded, posted
from truelog.dead_letters.replay import judge
from truelog.dead_letters.store import Coordinates, DeadLetter
from truelog.erasure.subject import named_in_text
from truelog.sources.collector.classifier import ClassifiedRecord
from truelog.sources.collector.cloud_event import TAKEN, is_binary, split, split_binary
from truelog.sources.collector.parser import RawEvent, split_document

TIME = "2026-11-21T09:59:00Z"
SENT = {"specversion": "1.0", "id": "1", "source": "/shop", "type": "thing", "time": TIME}
TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

written = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
uris = st.text(st.characters(exclude_categories=["Cs", "Cc", "Z"]), min_size=1, max_size=8)
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | written
members = st.dictionaries(st.sampled_from(["number", "small", "flag", "at", "words", *TAKEN]) | written, scalars)
data = st.none() | st.builds(lambda text, more: {"text": text} | more, written, members)


@st.composite
def cloud_events(draw: st.DrawFn) -> CloudEvent:
    attributes: dict[str, Any] = {
        "id": draw(written),
        "source": draw(uris),
        "type": draw(st.sampled_from(["thing", "com.example.thing", "com.example.thing.v2", "ticks"])),
        "time": draw(st.datetimes(datetime(2000, 1, 1), datetime(2027, 1, 1), timezones=st.just(UTC))),
    }
    further = {"subject": written, "dataschema": uris, "comexample": written, "traceparent": st.just(TRACE)}
    for name, values in further.items():
        if draw(st.booleans()):
            attributes[name] = draw(values)
    if draw(st.booleans()):
        attributes["datacontenttype"] = draw(st.sampled_from(["application/json", "application/vnd.a+json; v=1"]))
    return CloudEvent(attributes, draw(data))


def in_binary(event: CloudEvent) -> Iterator[RawEvent]:
    message = to_binary_event(event)
    return split_binary([(name.lower(), value) for name, value in message.headers.items()], message.body, MOST)


def classified(events: Iterator[RawEvent]) -> ClassifiedRecord:
    [record] = CLASSIFIER.classify(events, RECEIPT)
    return record


def said(record: ClassifiedRecord) -> tuple[Any, ...]:
    """All that a record says. The id of a dead letter is random."""
    value = json.loads(record.value)
    if record.defect is not None:
        value = json.loads(base64.b64decode(value["raw"]))
    return record.topic, record.key, value, record.defect, record.event_id, record.trace


@settings(REPEATABLE, max_examples=150)
@given(cloud_events())
def test_the_modes_give_the_same_record(event: CloudEvent) -> None:
    structured = to_structured_event(event).body
    [one, *others] = [in_binary(event), split(structured, MOST), split(b" [" + structured + b"] ", MOST)]
    expected = said(classified(one))
    assert [said(classified(each)) for each in others] == [expected] * 2


@settings(REPEATABLE, max_examples=150)
@given(cloud_events())
def test_a_cloud_event_is_judged_as_the_event_with_its_fields(event: CloudEvent) -> None:
    fields = event.get_data()
    assert fields is None or isinstance(fields, dict)
    record = classified(in_binary(event))
    if taken := [name for name in TAKEN if name in (fields or {})]:
        assert record.defect is not None
        assert record.defect.reason.startswith(f"has {taken[0]}")
        return
    envelope = {
        "type": event.get_type().rpartition(".")[2],
        "event_id": f"{event.get_source()} {event.get_id()}",
        "occurred_at": str(event.get_attributes()["time"].isoformat()),
    }
    plain = classified(split_document(json.dumps(envelope | (fields or {})).encode(), MOST))
    assert (record.topic, record.key, record.defect, record.event_id) == (
        plain.topic,
        plain.key,
        plain.defect,
        plain.event_id,
    )
    if record.defect is None:
        rows = decoded(TYPES["thing"], record.value, plain.value).to_pylist()
        assert rows[0] == rows[1]


@settings(REPEATABLE, max_examples=300)
@given(posted, st.booleans())
@example(b"", True)
def test_hostile_bodies_become_events_or_dead_letters_and_no_byte_is_lost(raw: bytes, is_binary: bool) -> None:
    if len(raw) > CLASSIFIER.max_bytes // 2:
        return
    headers = [(f"ce-{name}", value) for name, value in SENT.items()]
    events = split_binary(headers, raw, MOST) if is_binary else split(raw, MOST)
    for record in CLASSIFIER.classify(events, RECEIPT):
        if record.defect is None:
            assert decoded(TYPES[record.topic], record.value)["invalid"].to_pylist() == [None]
        elif is_binary:
            kept = base64.b64decode(json.loads(record.value)["raw"])
            assert raw.strip(b" \t\r\n{}") in kept or raw.strip() == b"null"  # null has no fields


@given(st.tuples(uris, written), st.tuples(uris, written))
@example(("a", "b c"), ("a b", "c"))
def test_two_events_have_one_id_only_if_source_and_id_are_equal(one: tuple[str, str], other: tuple[str, str]) -> None:
    first, second = (classified(sent(source=source, id=identity)) for source, identity in (one, other))
    assert (first.event_id == second.event_id) == (one == other) or first.defect or second.defect


def sent(fields: object = None, /, **changes: object) -> Iterator[RawEvent]:
    """A structured event with these attributes. None removes one."""
    given = {**SENT, "data": {"text": "t"} if fields is None else fields, **changes}
    return split(json.dumps({name: value for name, value in given.items() if value is not None}).encode(), MOST)


def test_the_bytes_of_the_data_stay_as_they_are() -> None:
    body = b' { "text": "t" , "unknown": [1.50, {"a": "\\u00e9"}] } '
    record = classified(split_binary([(f"ce-{name}", value) for name, value in SENT.items()], body, MOST))
    assert record.key == b"t"
    assert record.value.startswith(b'{"received_at":"2026-11-21T10:00:00.123000Z","type":"thing","event_id":"/shop 1",')
    assert record.value.endswith(b'},"text": "t" , "unknown": [1.50, {"a": "\\u00e9"}]}')
    assert json.loads(record.value)["cloudevent"] == SENT


def test_attributes_become_the_envelope() -> None:
    record = classified(
        sent(time="2026-11-21t09:59:00.123456789z", sentat="2026-11-21T11:00:00+01:00", subject="s", traceparent=TRACE)
    )
    value = json.loads(record.value)
    assert (value["occurred_at"], value["sent_at"]) == ("2026-11-21T09:59:00.123456Z", "2026-11-21T11:00:00+01:00")
    assert (value["cloudevent"]["subject"], value["cloudevent"]["time"][-4:]) == ("s", "789z")
    assert record.trace == TRACE
    assert classified(sent(id="i" * 122)).event_id == "/shop " + "i" * 122
    assert classified(sent(id="i" * 123)).event_id == hashlib.sha256(b"/shop " + b"i" * 123).hexdigest()


def test_data_without_a_type_and_data_in_base64_are_json() -> None:
    encoded = base64.b64encode(b'{"text": "t"}').decode()
    expected = said(classified(sent()))[2]["text"]
    for event in (sent(data=None, data_base64=encoded), sent(datacontenttype="text/json"), sent(data_base64=None)):
        assert said(classified(event))[2]["text"] == expected


@pytest.mark.parametrize(
    ("event", "field", "reason"),
    [
        (sent(specversion="0.3"), "specversion", "send CloudEvents 1.0"),
        (sent(id=None), "id", "missing, or not a text"),
        (sent(id=5), "id", "missing, or not a text"),
        (sent(time=None), "time", "missing, or not a text; it says when the event happened"),
        (sent(time="yesterday"), "time", "not a time such as"),
        (sent(sentat=7), "sentat", "not a time such as"),
        (sent(source="a b"), "source", "a URI has no space"),
        (sent(type="com.example."), "type", "not an event type"),
        (sent(datacontenttype="application/xml"), "datacontenttype", "not JSON"),
        (sent(datacontenttype=5), "datacontenttype", "not JSON"),
        (sent([1]), "data", "not a JSON object"),
        (sent(data_base64="e30="), "data", "a duplicate field"),
        (sent(data=None, data_base64="?"), "data_base64", "not Base64"),
        (sent(data=None, data_base64="e3"), "data_base64", "not Base64"),
        (sent(data=None, data_base64=base64.b64encode(b"{").decode()), "record", "not JSON"),
        (sent({"text": "t", "type": "x"}), "data", "has type, which follows from the attributes"),
        (sent({"text": 5}), "text", "Input should be a valid string"),
        (sent(data=None), "text", "Field required"),
        (split(b"5", MOST), "record", "not a JSON object"),
        (split(json.dumps(SENT)[:-1].encode() + b',"id":"2"}', MOST), "id", "a duplicate field"),
        (split(json.dumps(SENT)[:-1].encode() + b',"data":{"text":NaN}}', MOST), "record", "not JSON"),
        (split_binary([("ce-id", "1"), ("ce-id", "2")], b"", MOST), "id", "a duplicate field"),
    ],
)
def test_a_bad_cloud_event_has_its_attribute_and_reason(event: Iterator[RawEvent], field: str, reason: str) -> None:
    record = classified(event)
    assert record.defect is not None
    assert (record.defect.field, record.defect.reason[: len(reason)]) == (field, reason)


def test_headers_are_decoded() -> None:
    names = {f"ce-{name}": value for name, value in SENT.items()}
    for header, value in {
        "a%20b%E2%82%AC%25": "a b€%",
        '"a \\"b\\""': 'a "b"',
        "100%": "100%",
        "caf\xc3\xa9": "café",  # the bytes of UTF-8, as a server hands them over
    }.items():
        record = classified(split_binary((names | {"ce-subject": header}).items(), b'{"text":"t"}', MOST))
        assert json.loads(record.value)["cloudevent"]["subject"] == value
    wrong = classified(split_binary((names | {"ce-id": "%FF"}).items(), b'{"text":"t"}', MOST))
    assert wrong.defect is not None


def test_the_dead_letter_of_a_cloud_event_can_be_replayed() -> None:
    """Its bytes are the event in the collector's own form, so a replay needs no second mapping."""
    [event] = sent({"text": "t", "number": 1})
    without = {name: each for name, each in TYPES.items() if name != "thing"}
    [record] = replace(CLASSIFIER, types=without).classify([event], RECEIPT)
    raw = base64.b64decode(json.loads(record.value)["raw"])
    letter = DeadLetter(Coordinates("an-id", 0, 7), RECEIPT.time, None, "type", "not an event type", "tester", raw)
    assert judge(TYPES, letter) == CLASSIFIER.judge(event, RECEIPT)


@pytest.mark.parametrize("changes", [{"time": None}, {"datacontenttype": "text/plain"}, {}])
def test_an_erasure_finds_a_person_in_the_dead_letter(changes: dict[str, Any]) -> None:
    """Of encoded data too, and also if the event could not be mapped."""
    raw = b'{"text": 5, "visitor_id": "ann"}' if changes else b'x\nann" {'
    record = classified(sent(data=None, data_base64=base64.b64encode(raw).decode(), **changes))
    kept = base64.b64decode(json.loads(record.value)["raw"])
    assert record.defect is not None
    assert ("visitor_id", "ann") in named_in_text(["visitor_id"], kept)
    assert raw in kept


def test_only_the_headers_of_cloud_events_make_a_request_binary() -> None:
    assert is_binary({"content-type": "application/json", "ce-id": "1"})
    assert not is_binary({"content-type": "application/json", "cache-control": "no-store"})
