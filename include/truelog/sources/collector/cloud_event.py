"""CloudEvents 1.0, which the collector turns into events with the envelope before it classifies them.

The HTTP binding has three modes: the attributes in headers and the data as the body, one JSON object, and an array of
objects. Headers become a JSON object first, so that each event takes the same way in every mode.

| CloudEvent | event |
| --- | --- |
| `type` | `type`: the part behind the last dot, so `com.example.cart_event` is a `cart_event` |
| `source` and `id` | `event_id`: both, because an id is unique within its source only |
| `time` | `occurred_at`, with at most six decimal places |
| `sentat`, an extension | `sent_at` |
| the members of `data` | the fields of the type, byte for byte |
| `traceparent`, an extension | the header of the record |
| each attribute as it was sent | a member of `cloudevent`, which is an undeclared field |

An event that has no such form keeps the JSON object as its bytes, and its defect names an attribute, or `data`.
Base64 is decoded, so that an erasure finds a person in the bytes of each dead letter.
"""

import base64
import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import unquote_to_bytes

import msgspec

from truelog.schema.event import Event
from truelog.schema.field import fields_of
from truelog.sources.collector.parser import RawEvent, parse_event, split_document
from truelog.support import timestamps

STRUCTURED, BATCHED = "application/cloudevents+json", "application/cloudevents-batch+json"
HEADER = "ce-"  # the prefix of the headers that contain attributes
VERSION = "1.0"
REQUIRED = ("specversion", "id", "source", "type", "time")  # the standard does not require `time`
ATTRIBUTES = "cloudevent"
# Data cannot have these members, because the attributes say what they contain.
TAKEN = (*Event.model_fields, "type", ATTRIBUTES)

_JSON = re.compile(r"[a-z]+/(?:[a-z0-9.-]+\+)?json")
_SEVENTH_PLACE = re.compile(r"(\.[0-9]{6})[0-9]+")
_QUOTED = re.compile(r'\s*"((?:[^"\\]|\\.)*)"\s*')
_WHITESPACE = b" \t\r\n"
_TYPE = "content-type"
_OTHER_TYPE = "datacontenttype", "not JSON; send an object with the fields of the event as application/json"
[_LONGEST_ID] = (each.longest for each in fields_of(Event) if each.name == "event_id")

Headers = Iterable[tuple[str, str]]


class _NotMapped(Exception):
    """A CloudEvent that cannot become an event."""

    def __init__(self, attribute: str, reason: str) -> None:
        super().__init__(attribute, reason)
        self.defect = (attribute, reason)


def is_binary(headers: Mapping[str, str]) -> bool:
    """Whether the headers of a request contain attributes. The Content-Type says whether the body contains them."""
    return any(name.startswith(HEADER) for name in headers)


def split_binary(headers: Headers, body: bytes, most: int) -> Iterator[RawEvent]:
    """The event of a request in binary mode. `headers` has names in lower case, and values decoded as Latin-1."""
    yield _mapped(_structured(headers, body))


def split(body: bytes, most: int) -> Iterator[RawEvent]:
    """The events of a body in structured or batched mode. Raises 413 after `most` events."""
    return map(_mapped, split_document(body, most))


def _structured(headers: Headers, body: bytes) -> RawEvent:
    """The event in structured mode."""
    attributes = [
        ("datacontenttype", value) if name == _TYPE else (name.removeprefix(HEADER), _decoded(value))
        for name, value in headers
        if name == _TYPE or name.startswith(HEADER)
    ]
    members = [(name, _text(value)) for name, value in attributes]
    return _with_data(members, dict(attributes).get("datacontenttype"), body)


def _with_data(members: Iterable[tuple[str, bytes]], content_type: Any, data: bytes) -> RawEvent:
    """The event in structured mode. Data that is not JSON follows behind it, because an erasure reads no Base64."""
    if not data:
        return parse_event(_object(members))
    defect = parse_event(data).defect if _is_json(content_type) else _OTHER_TYPE
    if defect:
        return RawEvent(_object(members) + b"\n" + data, defect=defect)
    return parse_event(_object([*members, ("data", data)]))


def _decoded(value: str) -> str:
    """The value of a header. Earlier versions of the standard quoted texts instead of encoding them."""
    quoted = _QUOTED.fullmatch(value)
    text = re.sub(r"\\(.)", r"\1", quoted[1]) if quoted else value
    # Bytes that are not UTF-8 become text that the event's model rejects.
    return unquote_to_bytes(text.encode("latin-1")).decode("utf-8", "surrogateescape")


def _mapped(event: RawEvent) -> RawEvent:
    """The event with the envelope, or the same event with its defect."""
    given = event.value
    if event.defect or not isinstance(given, dict):
        return event  # the classifier says what is wrong
    try:
        sent = {name: value for name, value in _members(event.raw) if given[name] is not None}
        if "data_base64" in sent:
            del sent["data_base64"]
            return _mapped(_with_data(sent.items(), given.get("datacontenttype"), _from_base64(given["data_base64"])))
        envelope = [(name, _text(value)) for name, value in _envelope(given)]
        fields = _fields(given, sent.pop("data", None))
    except _NotMapped as error:
        return replace(event, defect=error.defect)
    head = _object([*envelope, (ATTRIBUTES, _object(sent.items()))])
    mapped = parse_event(head[:-1] + (b"," + fields if fields else b"") + b"}")
    trace = given.get("traceparent")
    return replace(mapped, trace=trace if isinstance(trace, str) else "")


def _members(raw: bytes) -> list[tuple[str, bytes]]:
    """The members of a JSON object, with the bytes of their values."""
    try:
        return [(name, bytes(value)) for name, value in msgspec.json.decode(raw, type=dict[str, msgspec.Raw]).items()]
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise _NotMapped("record", f"not JSON: {error}") from None


def _envelope(given: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name in REQUIRED:
        if not isinstance(given.get(name), str) or not given[name]:
            why = "; it says when the event happened" if name == "time" else ""
            raise _NotMapped(name, f"missing, or not a text{why}")
    if given["specversion"] != VERSION:
        raise _NotMapped("specversion", f"send CloudEvents {VERSION}")
    yield "type", given["type"].rpartition(".")[2]
    yield "event_id", _event_id(given["source"], given["id"])
    yield "occurred_at", _time(given, "time")
    if given.get("sentat") is not None:
        yield "sent_at", _time(given, "sentat")


def _event_id(source: str, identity: str) -> str:
    """An id for each pair: a URI has no space. A hash if the pair is longer than an id may be."""
    if any(each.isspace() for each in source):
        raise _NotMapped("source", "a URI has no space; encode it as %20")
    both = f"{source} {identity}"
    if _LONGEST_ID is None or len(both) <= _LONGEST_ID:
        return both
    return hashlib.sha256(both.encode("utf-8", "surrogatepass")).hexdigest()


def _time(given: Mapping[str, Any], name: str) -> str:
    """The time in the format of events. RFC 3339 also allows small letters and more decimal places."""
    text = _SEVENTH_PLACE.sub(r"\1", str(given[name]).upper())
    try:
        timestamps.parse_timestamp(text)
    except ValueError as error:
        raise _NotMapped(name, str(error)) from None
    return text


def _fields(given: Mapping[str, Any], raw: bytes | None) -> bytes:
    """The members of the data, without the braces around them. Empty if there is no data."""
    if raw is None:
        return b""
    if not _is_json(given.get("datacontenttype")):
        raise _NotMapped(*_OTHER_TYPE)
    data = given["data"]
    if not isinstance(data, dict):
        raise _NotMapped("data", "not a JSON object")
    if taken := [name for name in TAKEN if name in data]:
        raise _NotMapped("data", f"has {taken[0]}, which follows from the attributes; use another name in the data")
    return raw.strip(_WHITESPACE)[1:-1].strip(_WHITESPACE)


def _from_base64(encoded: Any) -> bytes:
    try:
        return base64.b64decode(encoded, validate=True)
    except (TypeError, ValueError):
        raise _NotMapped("data_base64", "not Base64") from None


def _is_json(content_type: Any) -> bool:
    """Whether the type of the data is JSON, as it is without one."""
    if content_type is None:
        return True
    return isinstance(content_type, str) and bool(_JSON.fullmatch(content_type.partition(";")[0].strip().lower()))


def _object(members: Iterable[tuple[str, bytes]]) -> bytes:
    """A JSON object with these values, which are JSON already."""
    return b"{" + b",".join(_text(name) + b":" + value for name, value in members) + b"}"


def _text(value: str) -> bytes:
    """A JSON text. Half of a surrogate pair becomes bytes that the event's model rejects."""
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")
