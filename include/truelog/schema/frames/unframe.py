"""Takes the values out of frames: from then on, a framed record is judged as the JSON of the same values is.

A frame is a zero byte, four bytes with the number of a schema, and the value. JSON cannot begin with a zero byte, so
a record says itself whether it is framed. Only schemas that the version of the event type contains are used, so the
result depends on nothing but the version and the record.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from truelog.schema.event import EventType
from truelog.schema.frames import avro_value
from truelog.schema.frames.avro_value import NoJson
from truelog.schema.frames.kept_schema import AVRO, KeptSchema

PREFIX = 5  # bytes before the value
_SHORT = -1  # in place of a schema's number
_WRITER = msgspec.json.Encoder()

_Numbers = NDArray[np.int64]


class _Invalid(Exception):
    """The value is not an event. The message is the reason."""


@dataclass(frozen=True)
class Unframed:
    """The values without frames, and why a value is invalid. Such a value is NULL."""

    values: pa.Array
    reasons: pa.Array


def is_framed(value: bytes | None) -> bool:
    return value is not None and value.startswith(b"\0")


def unframe(event_type: EventType, values: pa.Array) -> Unframed | None:
    """The values (binary) without their frames, in the same order. None if no value is framed."""
    rows, numbers = _framed(values)
    if not len(rows):
        return None
    is_plain = np.ones(len(values), np.bool_)
    is_plain[rows] = False
    places = [np.flatnonzero(is_plain)]
    parts = [Unframed(values.filter(pa.array(is_plain)), pa.nulls(len(places[0]), pa.string()))]
    kept = {each.id: each for each in event_type.frames}
    for number in np.unique(numbers).tolist():
        of_schema = rows[numbers == number]
        places.append(of_schema)
        parts.append(_unframed(event_type, kept.get(number), number, values.take(pa.array(of_schema))))
    order = pa.array(np.argsort(np.concatenate(places), kind="stable"))
    return Unframed(
        pa.concat_arrays([each.values for each in parts]).take(order),
        pa.concat_arrays([each.reasons for each in parts]).take(order),
    )


def _framed(values: pa.Array) -> tuple[_Numbers, _Numbers]:
    """The rows of the framed values, and the numbers of their schemas."""
    nothing, content = np.array([], np.int64), values.buffers()[2]
    if not len(values) or content is None:
        return nothing, nothing
    starts = _starts(values)
    data, lengths = np.frombuffer(content, np.uint8), np.diff(starts)
    filled = np.flatnonzero(lengths)
    rows = filled[data[starts[filled]] == 0]
    if values.null_count:
        rows = rows[values.is_valid().to_numpy(zero_copy_only=False)[rows]]
    numbers = np.full(len(rows), _SHORT, np.int64)
    whole = np.flatnonzero(lengths[rows] > PREFIX)
    digits = [data[starts[rows[whole]] + place].astype(np.int64) << shift for place, shift in _DIGITS]
    numbers[whole] = sum(digits, np.zeros(len(whole), np.int64))
    return rows, numbers


_DIGITS = ((1, 24), (2, 16), (3, 8), (4, 0))  # the place of each byte of a number, and its bits


def _unframed(event_type: EventType, schema: KeptSchema | None, number: int, values: pa.Array) -> Unframed:
    if schema is None:
        short = f"record: a frame of at most {PREFIX} bytes, which has no value"
        unknown = f"record: schema {number} of the schema registry was not kept when the record was written"
        reason = short if number == _SHORT else unknown
        return Unframed(pa.nulls(len(values), pa.binary()), pa.array([reason] * len(values), pa.string()))
    if schema.kind != AVRO:
        return Unframed(_without_prefix(values), pa.nulls(len(values), pa.string()))
    names = [each.name for each in event_type.fields]
    return _each(values, lambda value: _json_of(schema, names, value[PREFIX:]))


def _without_prefix(values: pa.Array) -> pa.Array:
    """The values without the bytes before them. Arrow's `binary_slice` fails on some batches."""
    starts, content = _starts(values), np.frombuffer(values.buffers()[2], np.uint8)
    lengths = np.arange(len(starts)) * PREFIX  # of all prefixes before each start
    is_kept = np.ones(len(content), np.bool_)
    is_kept[: starts[0]], is_kept[starts[-1] :] = False, False
    is_kept[starts[:-1, np.newaxis] + np.arange(PREFIX)] = False
    buffers = [None, pa.py_buffer((starts - starts[0] - lengths).astype(np.int32)), pa.py_buffer(content[is_kept])]
    return pa.Array.from_buffers(pa.binary(), len(values), buffers)


def _starts(values: pa.Array) -> _Numbers:
    """Where each value starts in the content, and where the last one ends."""
    offsets = np.frombuffer(values.buffers()[1], np.int32)
    return offsets[values.offset : values.offset + len(values) + 1].astype(np.int64)


def _each(values: pa.Array, convert: Callable[[bytes], bytes]) -> Unframed:
    converted: list[bytes | None] = []
    reasons: list[str | None] = []
    for value in values.to_pylist():
        try:
            converted.append(convert(value))
            reasons.append(None)
        except _Invalid as invalid:
            converted.append(None)
            reasons.append(str(invalid))
    return Unframed(pa.array(converted, pa.binary()), pa.array(reasons, pa.string()))


def _json_of(schema: KeptSchema, names: Collection[str], payload: bytes) -> bytes:
    """The JSON object with the declared fields of an Avro record."""
    record = avro_value.read(schema.text, payload)
    if record is None:
        raise _Invalid(f"record: not exactly one value of schema {schema.id} of the schema registry")
    return _WRITER.encode({name: _field(name, record[name]) for name in names if name in record})


def _field(name: str, value: Any) -> Any:
    try:
        return avro_value.as_json(value)
    except NoJson as error:
        raise _Invalid(f"{name}: {error}, which JSON cannot carry") from None
