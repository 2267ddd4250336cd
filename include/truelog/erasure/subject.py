"""Subjects: the person whose records an erasure covers, known by the keyed hash of a field's value.

Without the secret, a hash does not show the person. Whether a record names a subject follows from the
record's bytes alone, so that the stream, the archive and a rebuild agree, whatever version of the event type judges
the record.
"""

import hmac
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

HASH_BYTES = 32

_NOT_JSON = (ValueError, RecursionError)
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"')
_QUOTED = re.compile(rb"'([^'\n]*)'")
_NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?")
_WORD = re.compile(r"""[^\s"'`,;:=&?<>(){}\[\]|\\]+""")
_EDGES = ".!/…"  # punctuation around a word, which may also be inside of a word
_IPV6 = re.compile(r"(?<!\w)[\da-fA-F:.]+")


@dataclass(frozen=True, order=True)
class Subject:
    """A field, and the keyed hash of its value."""

    field: str
    hash: bytes

    @staticmethod
    def of(secret: bytes, field: str, value: str) -> "Subject":
        """The subject with this value. The field is hashed too, so equal values of two fields cannot be linked."""
        content = f"{field}\0{value}".encode(errors="surrogatepass")
        return Subject(field, hmac.digest(secret, content, "sha256"))


def secret_check(secret: bytes) -> bytes:
    """The same for each use of a secret. It does not show the secret."""
    return hmac.digest(secret, b"check", "sha256")


def seal(secret: bytes, content: str) -> str:
    """Shows that the writer of the content knows the secret."""
    return hmac.digest(secret, b"seal\0" + content.encode(), "sha256").hex()


Named = tuple[str, str]  # a field, and its value as text


def named_values(fields: Collection[str], value: bytes | None, key: bytes | None, key_field: str | None) -> set[Named]:
    """The values of these fields that a record names. The key counts only in a record without a value."""
    if value is not None:
        return _in_content(fields, value)
    text = (key or b"").decode(errors="replace")
    own = {(key_field, text)} if key_field in fields and key_field is not None else set[Named]()
    return own | _in_content(fields, key or b"")


def named_in_text(fields: Collection[str], content: bytes, *, numbers: bool = False) -> set[Named]:
    """The values of these fields that any text may name: each of its words, and of its strings in any quotes, is one.

    A number says nothing alone: it is named only as the value of one of the fields, or with `numbers` as any string.
    So is a value of several words without quotes. An IP address is a word, and no number.
    """
    strings = [text for text in map(_scalar, _STRING.findall(content)) if isinstance(text, str)]
    strings += [text.decode(errors="replace") for text in _QUOTED.findall(content)]
    whole = {(field, text) for text in strings if numbers or not is_number(text) for field in fields}
    return _in_content(fields, content) | whole | {*_words(fields, content)} | {*_assigned(fields, content)}


def is_clear(text: str) -> bool:
    """Whether a value is one word without punctuation at its ends, and no number: each text with this word names it."""
    if text in _ipv6(text):
        return text == text.rstrip(".:")
    return _WORD.fullmatch(text) is not None and text == text.strip(_EDGES) and not is_number(text)


def is_number(text: str) -> bool:
    return _NUMBER.fullmatch(text) is not None


def _in_content(fields: Collection[str], content: bytes) -> set[Named]:
    """The values of these fields in any content. It is parsed as a whole, which shows whether it is a JSON object."""
    parsed = _Parsed(frozenset(fields), set())
    try:
        whole = _loads(content.decode(), parsed.add)
    except _NOT_JSON:
        whole = None
    return parsed.found if whole is parsed else parsed.found | {*_words(fields, content)}


def _scalar(content: bytes) -> object:
    """The JSON scalar, with numbers as text; None if there is none."""
    try:
        return _loads(content.decode())
    except _NOT_JSON:
        return None


def _loads(text: str, add: Callable[[list[tuple[str, Any]]], object] | None = None) -> object:
    return json.loads(text, object_pairs_hook=add, parse_int=str, parse_float=str, parse_constant=str)


@dataclass(frozen=True, eq=False)
class _Parsed:
    """Collects the values of fields while JSON is parsed. The result of each object is this collector."""

    fields: frozenset[str]
    found: set[Named]

    def add(self, pairs: Iterable[tuple[str, Any]]) -> "_Parsed":
        for name, value in pairs:
            if name in self.fields:
                self.found.update((name, each) for each in _texts(value))
        return self


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for each in value:
            yield from _texts(each)


def _assigned(fields: Collection[str], content: bytes) -> Iterator[Named]:
    """The values in texts such as `field=value`: the first word, and what comes before the next separator."""
    for found in _assignment(frozenset(fields)).finditer(content.decode(errors="replace")):
        field, value = found.groups()
        yield field, value.strip()
        if word := _WORD.match(value):
            yield field, word.group()


@cache
def _assignment(fields: frozenset[str]) -> re.Pattern[str]:
    """Finds each of the fields before an equals sign, and its value, which has a bound: a text may repeat a field."""
    return re.compile(rf"""(?<!\w)({"|".join(map(re.escape, sorted(fields)))})\s*=\s*['"]?(?=([^\n,;&"]{{1,200}}))""")


def _words(fields: Collection[str], content: bytes) -> Iterator[Named]:
    """Each word of a content that is not a JSON object, as the value of each field, unless it is a number or only dots.

    A word counts as it is, and without the punctuation at its ends.
    """
    text = content.decode(errors="replace")
    words = {*_WORD.findall(text)}
    for word in words | {each.strip(_EDGES) for each in words} | _ipv6(text):
        if word.strip(".") and not is_number(word):
            yield from ((field, word) for field in fields)


def _ipv6(text: str) -> set[str]:
    """The IPv6 addresses of a text. Other colons separate words, such as those of a time."""
    found = {each for each in _IPV6.findall(text) if "::" in each or each.count(":") >= 5}
    return found | {each.rstrip(".") for each in found} | {each.rstrip(".:") for each in found}
