"""A body told apart into its events, each with its own bytes.

What an event says is judged by its type's model later. Here only its end is found, and what that model would not see:
a field given twice, a number beyond every float, what is no JSON at all. From where a body can be told apart no
further, the rest of it is one piece with a flaw, so that no byte is lost.

Bytes that are no UTF-8 pass through as surrogates and come out again as they were.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

_WHITE = re.compile(r"[ \t\r\n]*")
_UNREADABLE = (ValueError, RecursionError)
_LONGEST_INTEGER = 300  # digits: a float holds 308, and readers differ on longer ones
_LONGEST_NAME = 64  # of what a sender made up and hears again


@dataclass(frozen=True)
class Piece:
    """What stands for one event: its bytes, what JSON says they are, and what is wrong with them as JSON."""

    raw: bytes
    said: Any = None
    flaw: tuple[str, str] | None = None  # field and reason


def split_lines(body: bytes) -> Iterator[Piece]:
    """Newline-delimited JSON: an event a line, blank ones apart."""
    reader = _Reader()
    for line in body.split(b"\n"):
        if line.strip(b" \t\r"):
            yield _single(reader, line.removesuffix(b"\r"))


def split_document(body: bytes) -> Iterator[Piece]:
    """One JSON document: an array of events, or an event."""
    if body.lstrip(b" \t\r\n")[:1] == b"[":
        yield from _elements(_Reader(), _text(body))
    else:
        yield _single(_Reader(), body)


def _single(reader: "_Reader", raw: bytes) -> Piece:
    text = _text(raw)
    try:
        piece, end = reader.piece(text, _skip(text, 0))
        if _skip(text, end) < len(text):
            raise json.JSONDecodeError("Extra data", text, end)
    except _UNREADABLE as error:
        return _broken(raw, error)
    return Piece(raw, piece.said, piece.flaw)


def _elements(reader: "_Reader", text: str) -> Iterator[Piece]:
    at = _skip(text, _skip(text, 0) + 1)
    if text[at : at + 1] == "]":
        at = _skip(text, at + 1)
        if at < len(text):
            yield _broken(_bytes(text[at:]), json.JSONDecodeError("Extra data", text, at))
        return
    while True:
        try:
            piece, end = reader.piece(text, at)
        except _UNREADABLE as error:
            yield _broken(_bytes(text[at:]), error)
            return
        yield piece
        following = _skip(text, end)
        if text[following : following + 1] == ",":
            at = _skip(text, following + 1)
            continue
        closed = text[following : following + 1] == "]"
        rest = _skip(text, following + 1) if closed else following
        if not closed or rest < len(text):
            said = "Extra data" if closed else "Expecting ',' or ']'"
            yield _broken(_bytes(text[rest:]), json.JSONDecodeError(said, text, rest))
        return


class _Reader:
    """Python's JSON reader, which says where a value ends; what it would let pass is noted."""

    def __init__(self) -> None:
        self._flaw: tuple[str, str] | None = None
        self._twice: str | None = None
        self._decoder = json.JSONDecoder(
            object_pairs_hook=self._object,
            parse_float=self._float,
            parse_int=self._int,
            parse_constant=self._constant,
            strict=False,  # a control character in a text is the model's to refuse: the text ends nevertheless
        )

    def piece(self, text: str, start: int) -> tuple[Piece, int]:
        """The value that begins there, and where it ends."""
        self._flaw = self._twice = None
        said, end = self._decoder.raw_decode(text, start)
        twice = (self._twice, "a duplicate field") if self._twice is not None and isinstance(said, dict) else None
        return Piece(_bytes(text[start:end]), said, self._flaw or twice), end

    def _object(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        """Called for inner objects first: what it notes last is about the event itself."""
        found = dict(pairs)
        self._twice = None if len(found) == len(pairs) else _first_twice(pairs)
        return found

    def _float(self, number: str) -> float:
        value = float(number)
        if value in (float("inf"), float("-inf")):
            self._flaw = ("record", "a number outside the range of float")
        return value

    def _int(self, number: str) -> int:
        if len(number) > _LONGEST_INTEGER:
            self._flaw = ("record", f"an integer of more than {_LONGEST_INTEGER} digits")
            return 0
        return int(number)

    def _constant(self, name: str) -> None:
        self._flaw = ("record", f"not JSON: {name} is no number")


def _first_twice(pairs: list[tuple[str, Any]]) -> str:
    names = [name for name, _ in pairs]
    twice = next(name for place, name in enumerate(names) if name in names[:place])
    return twice[:_LONGEST_NAME].encode("ascii", "backslashreplace").decode()


def _broken(raw: bytes, error: Exception) -> Piece:
    if isinstance(error, json.JSONDecodeError):
        return Piece(raw, flaw=("record", f"not JSON: {error.msg} at character {error.pos}"))
    return Piece(raw, flaw=("record", "not JSON that can be read: nested too deep"))


def _skip(text: str, at: int) -> int:
    found = _WHITE.match(text, at)
    return found.end() if found else at


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
