"""Framed records: the values that a record in the frame of a schema registry names.

The kept schema of the frame's number says where its values are, and a number never gets another schema. Nothing says
whom a frame names that no kept schema can read, so every erasure of its topic covers it.
"""

from collections.abc import Collection, Iterator, Mapping
from datetime import date, time
from decimal import Decimal
from typing import Any
from uuid import UUID

from truelog.erasure.subject import Named, named_values
from truelog.schema.frames import avro_value
from truelog.schema.frames.kept_schema import AVRO, KeptSchema
from truelog.schema.frames.unframe import PREFIX

_LOGICAL = (date, time, Decimal, UUID)


def named_in_frame(fields: Collection[str], kept: Mapping[int, KeptSchema], value: bytes) -> set[Named] | None:
    """The values of these fields, at any depth. None if no kept schema can read the frame."""
    schema = kept.get(int.from_bytes(value[1:PREFIX], "big")) if len(value) > PREFIX else None
    if schema is None:
        return None
    payload = value[PREFIX:]
    if schema.kind != AVRO:
        return named_values(fields, payload, None, None)
    record = avro_value.read(schema.text, payload)
    return None if record is None else {*_in_object(frozenset(fields), record)}


def _in_object(fields: frozenset[str], record: Mapping[str, Any]) -> Iterator[Named]:
    for name, value in record.items():
        if name in fields:
            yield from ((name, text) for text in _texts(value))
        yield from _in_part(fields, value)


def _in_part(fields: frozenset[str], value: Any) -> Iterator[Named]:
    if isinstance(value, dict):
        yield from _in_object(fields, value)
    elif isinstance(value, list):
        for each in value:
            yield from _in_part(fields, each)


def _texts(value: Any) -> Iterator[str]:
    """The texts by which an erasure may name the value: the same as in the JSON of the record."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield str(value)
    elif isinstance(value, bytes):
        yield value.decode(errors="replace")
    elif isinstance(value, _LOGICAL):
        yield avro_value.as_text(value)
    elif isinstance(value, list):
        for each in value:
            yield from _texts(each)
