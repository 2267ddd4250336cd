"""Avro values: from bytes to Python, and from there to what JSON can carry.

| Avro | JSON |
| --- | --- |
| string, enum, uuid | text |
| int, long | integer |
| float, double | number; NaN and infinity have none |
| timestamp-millis, timestamp-micros | text in UTC, such as `2026-11-28T10:00:00Z` |
| date, time-millis, time-micros, local timestamps | text in ISO 8601 without a zone |
| decimal | text with all its digits, because a JSON number is read as a float |
| array, map, record | array, object |
| union | the value of its branch |
| bytes, fixed | none |
"""

import math
import struct
from datetime import date, datetime, time
from decimal import Decimal
from functools import cache
from io import BytesIO
from typing import Any
from uuid import UUID

import fastavro
from fastavro.read import LOGICAL_READERS

from truelog.schema.frames.avro_schema import MOST_DIGITS, OWN_DECIMAL, parsed
from truelog.support import timestamps

_AS_THEY_ARE = frozenset({str, int, bool, type(None)})
_UNREADABLE = (
    EOFError,
    struct.error,
    ValueError,  # text that is not UTF-8, a wrong uuid, a year past 9999
    OverflowError,
    IndexError,  # a branch of a union, or a symbol of an enum, that does not exist
    KeyError,
    TypeError,
    MemoryError,
    RecursionError,
)


class NoJson(Exception):
    """JSON cannot carry the value. The message says which kind of value it is."""


def read(text: str, payload: bytes) -> dict[str, Any] | None:
    """The record of this schema in the whole payload, as Python values. None if the payload is something else."""
    _use_own_decimals()
    source = BytesIO(payload)
    try:
        found = fastavro.schemaless_reader(source, parsed(text), None)
    except _UNREADABLE:
        return None
    if source.tell() != len(payload) or not isinstance(found, dict):
        return None
    return found


def as_json(value: Any) -> Any:
    """The value with only what JSON has.

    Raises:
        NoJson: JSON cannot carry the value.
    """
    if type(value) in _AS_THEY_ARE:
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise NoJson("NaN or infinity")
        return value
    if isinstance(value, list):
        return [as_json(each) for each in value]
    if isinstance(value, dict):
        return {name: as_json(each) for name, each in value.items()}
    if isinstance(value, bytes):
        raise NoJson("bytes")
    return as_text(value)


def as_text(value: date | time | Decimal | UUID) -> str:
    """The text of a value with a logical type."""
    if isinstance(value, datetime) and value.tzinfo is not None:
        return timestamps.to_text(value)
    if isinstance(value, date | time):
        return value.isoformat()
    return format(value, "f") if isinstance(value, Decimal) else str(value)


@cache
def _use_own_decimals() -> None:
    """Let fastavro read decimals with our function. Its table of readers exists for this."""
    for kind in ("bytes", "fixed"):
        LOGICAL_READERS[f"{kind}-{OWN_DECIMAL}"] = _decimal


def _decimal(value: bytes, schema: dict[Any, Any] | None, _: Any = None) -> Decimal:
    """The exact number. Raises ValueError if it has more digits than the schema declares."""
    declared = schema or {}  # fastavro calls this only for a value with the logical type
    if len(value) > MOST_DIGITS:  # it has still more digits
        raise ValueError("a decimal that is too long")
    number = int.from_bytes(value, "big", signed=True)
    if abs(number) >= 10 ** declared["precision"]:
        raise ValueError("a decimal with too many digits")
    sign, digits = int(number < 0), tuple(map(int, str(abs(number))))
    return Decimal((sign, digits, -declared.get("scale", 0)))
