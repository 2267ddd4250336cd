"""The file in which Kafka Connect keeps how far each connector has read: a map of Java, whose keys and values are JSON.

Connect replaces the file every two seconds while changes flow. If the file is missing, or was cut off by a kill or a
full disk, Connect begins without offsets and says nothing.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

# A HashMap of byte arrays as Java serialises it: its number of entries, then each key and its value, and an "x".
_MAP = re.compile(
    rb"\xac\xed\x00\x05sr\x00\x11java\.util\.HashMap.{8}\x03\x00\x02F\x00\nloadFactorI\x00\tthresholdxp.{8}w\x08.{4}(.{4})",
    re.DOTALL,
)
_ARRAY = re.compile(rb"u(?:r\x00\x02\[B.{8}\x02\x00\x00xp|q.{4})(.{4})", re.DOTALL)  # the class, then the length
_NULL, _END = b"p", b"x"


class _Offset(msgspec.Struct):
    """What Debezium says about the snapshot. A connector that streams says nothing about it."""

    snapshot: str | None = None
    snapshot_completed: bool = False


_KEY = msgspec.json.Decoder(tuple[str, dict[str, str]])  # the connector, and the prefix under `server`
_VALUE = msgspec.json.Decoder(_Offset)


def with_snapshot(file: Path) -> set[str]:
    """The prefixes whose snapshot has ended, so that Debezium goes on behind it. None of a file that was cut off."""
    content = file.read_bytes() if file.is_file() else b""
    try:
        arrays = list(_arrays(content))
    except _CutOff:
        return set()
    pairs = zip(arrays[::2], arrays[1::2], strict=True)
    known = ((_KEY.decode(key)[1]["server"], _VALUE.decode(value)) for key, value in pairs if key and value)
    return {prefix for prefix, offset in known if offset.snapshot is None or offset.snapshot_completed}


class _CutOff(Exception):
    """The file is not whole."""


def _arrays(content: bytes) -> Iterator[bytes | None]:
    """Each key and its value, in turn."""
    head = _MAP.match(content)
    if head is None:
        raise _CutOff
    at = head.end()
    for _ in range(2 * int.from_bytes(head[1])):
        if content[at : at + 1] == _NULL:
            at += 1
            yield None
            continue
        array = _ARRAY.match(content, at)
        if array is None:
            raise _CutOff
        at = array.end() + int.from_bytes(array[1])
        yield content[array.end() : at]
    if content[at:] != _END:
        raise _CutOff
