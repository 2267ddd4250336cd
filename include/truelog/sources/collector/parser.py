"""The splitter: divides a body into its events, each with its own bytes.

The model of an event's type validates the event later. The splitter only finds the end of each event and the defects
that the model would miss: a duplicate field, a number outside the range of float, text that is not JSON. If the body
cannot be split any further, the rest becomes one defective event, so that no byte is lost. A body with too many events
is refused before the rest of it is processed.

NaN and Infinity are accepted in fields that the event type does not declare, because the decoder accepts them there.

Bytes that are not UTF-8 are decoded to surrogates and later encoded back to the same bytes.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from truelog.support.errors import RequestRefused

_WHITESPACE = re.compile(r"[ \t\r\n]*")
_BLANK = re.compile(rb"[ \t\r\n]*")
_UNREADABLE = (ValueError, RecursionError)
_LONGEST_INTEGER = 300  # digits: a float has up to 308 digits, and parsers differ on longer integers
_LONGEST_NAME = 64  # characters of a sender's field name that an error message repeats


@dataclass(frozen=True)
class RawEvent:
    """The bytes of one event, its JSON value, and the defect in its JSON, if any."""

    raw: bytes
    value: Any = None
    defect: tuple[str, str] | None = None  # field and reason
    trace: str = ""  # the `traceparent` of a CloudEvent, which need not be valid


def split_lines(body: bytes, most: int) -> Iterator[RawEvent]:
    """Split newline-delimited JSON with one event per line. Blank lines are ignored.

    Raises 413 before any line is parsed if there are more than `most` events.
    """
    lines, parser = list(islice(_lines(body), most + 1)), _Parser()
    if len(lines) > most:
        raise _too_many(most)
    for line in lines:
        yield _single(parser, line)


def split_document(body: bytes, most: int) -> Iterator[RawEvent]:
    """Split one JSON document: an array of events, or a single event. Raises 413 after `most` events."""
    if body.lstrip(b" \t\r\n")[:1] != b"[":
        yield parse_event(body)
        return
    for number, event in enumerate(_elements(_Parser(), _text(body))):
        if number == most:
            raise _too_many(most)
        yield event


def parse_event(raw: bytes) -> RawEvent:
    """The event whose bytes are `raw`."""
    return _single(_Parser(), raw)


def _too_many(most: int) -> RequestRefused:
    return RequestRefused(413, f"more than {most} events; send fewer at a time")


def _lines(body: bytes) -> Iterator[bytes]:
    """The lines that are not blank. Blank lines are skipped many at a time, because a body may have millions."""
    start = 0
    while (blank := _BLANK.match(body, start)) and blank.end() < len(body):
        start = body.rfind(b"\n", start, blank.end()) + 1 or start
        end = body.find(b"\n", blank.end())
        end = len(body) if end < 0 else end
        yield body[start:end].removesuffix(b"\r")
        start = end


def _single(parser: "_Parser", raw: bytes) -> RawEvent:
    text = _text(raw)
    try:
        event, end = parser.parse(text, _skip(text, 0))
        if _skip(text, end) < len(text):
            raise json.JSONDecodeError("Extra data", text, end)
    except _UNREADABLE as error:
        return _unreadable(raw, error)
    return RawEvent(raw, event.value, event.defect)


def _elements(parser: "_Parser", text: str) -> Iterator[RawEvent]:
    at = _skip(text, _skip(text, 0) + 1)
    if text[at : at + 1] == "]":
        at = _skip(text, at + 1)
        if at < len(text):
            yield _unreadable(_bytes(text[at:]), json.JSONDecodeError("Extra data", text, at))
        return
    while True:
        try:
            event, end = parser.parse(text, at)
        except _UNREADABLE as error:
            yield _unreadable(_bytes(text[at:]), error)
            return
        yield event
        following = _skip(text, end)
        if text[following : following + 1] == ",":
            at = _skip(text, following + 1)
            continue
        closed = text[following : following + 1] == "]"
        rest = _skip(text, following + 1) if closed else following
        if not closed or rest < len(text):
            message = "Extra data" if closed else "Expecting ',' or ']'"
            yield _unreadable(_bytes(text[rest:]), json.JSONDecodeError(message, text, rest))
        return


class _Parser:
    """Python's JSON parser, which reports the end of a value, extended with checks for the defects that it accepts."""

    def __init__(self) -> None:
        self._defect: tuple[str, str] | None = None
        self._duplicate: str | None = None
        self._decoder = json.JSONDecoder(
            object_pairs_hook=self._object,
            parse_float=self._float,
            parse_int=self._int,
            strict=False,  # the model rejects control characters in a string; the end of the event is still clear
        )

    def parse(self, text: str, start: int) -> tuple[RawEvent, int]:
        """The event that begins at `start`, and its end."""
        self._defect = self._duplicate = None
        value, end = self._decoder.raw_decode(text, start)
        is_duplicate = self._duplicate is not None and isinstance(value, dict)
        duplicate = (str(self._duplicate), "a duplicate field") if is_duplicate else None
        return RawEvent(_bytes(text[start:end]), value, self._defect or duplicate), end

    def _object(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        """Called for inner objects first, so the last result concerns the event itself."""
        members = dict(pairs)
        self._duplicate = None if len(members) == len(pairs) else _first_duplicate(pairs)
        return members

    def _float(self, number: str) -> float:
        value = float(number)
        if value in (float("inf"), float("-inf")):
            self._defect = ("record", "a number outside the range of float")
        return value

    def _int(self, number: str) -> int:
        if len(number) > _LONGEST_INTEGER:
            self._defect = ("record", f"an integer of more than {_LONGEST_INTEGER} digits")
            return 0
        return int(number)


def _first_duplicate(pairs: list[tuple[str, Any]]) -> str:
    seen = set[str]()
    for name, _ in pairs:
        if name in seen:
            return name[:_LONGEST_NAME].encode("ascii", "backslashreplace").decode()
        seen.add(name)
    raise ValueError("no name occurs twice")


def _unreadable(raw: bytes, error: Exception) -> RawEvent:
    if isinstance(error, json.JSONDecodeError):
        return RawEvent(raw, defect=("record", f"not JSON: {error.msg} at character {error.pos}"))
    return RawEvent(raw, defect=("record", "not readable JSON: nested too deeply"))


def _skip(text: str, at: int) -> int:
    """The position after the whitespace at `at`."""
    match = _WHITESPACE.match(text, at)
    return match.end() if match else at


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
