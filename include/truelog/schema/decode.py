"""Decode: the raw bytes of records into the typed columns of their event type, a column at a time.

One row out for each record in, in order: the columns of `event_type.arrow_schema` and `invalid`, the reason
why a record is no such event (then all other columns are NULL). Each row is a function of its own record and
broker time alone:

1. Records that Arrow's parser must not see are kept from it.
2. The others are parsed together, after each a sentinel: an object with a field of a random name and the
   record's number. Only if exactly one object lies between any two did every record speak for itself alone.
3. Where anything fails, records that are bad beyond doubt are set aside and the others are halved, down to
   single records: what a record is alone is what it is.
4. Required fields, bounds, event_time and the future limit are checked by column (`truelog.schema.batch_validation`).

What `event_type.model` accepts is accepted here with the same values, but for a record that gives a declared
field twice (pydantic takes the last) or anywhere a number beyond every float, as 1e400: on what those say
readers differ, so here they are invalid. The other way round, unknown fields may nest deeper and hold longer
numbers than pydantic's parser takes.
Text holds U+2400 for U+0000, which PostgreSQL cannot hold; -0.0 is 0.0.
"""

import re
import secrets
from collections.abc import Iterator
from datetime import datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from truelog.schema import record_validation
from truelog.schema.batch_validation import EARLIEST, LATEST, validate_columns
from truelog.schema.event import EventType
from truelog.schema.field import INSTANT, Field
from truelog.support import timestamps

# Parsed at a time: enough to spread the cost of a call, few enough that a bad record costs its neighbours little.
_RECORDS, _BYTES = 1024, 64 * 2**20

_NUMBERS = pa.array([str(number) for number in range(_RECORDS)])
_DATA_ROWS = pa.array(range(0, 2 * _RECORDS, 2), pa.int32())
_SENTINELS = pa.array([row // 2 if row % 2 else None for row in range(2 * _RECORDS)], pa.int64())

_OBJECT = r"^[ \t\r\n]*\{"
_BARE_NULL = re.compile(rb"\}[ \t\r\n]*null")
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_ESCAPED_NUL = re.compile(rb"\\u0000")
_TIME = f"^(?:{timestamps.PATTERN})$"


class _Unreadable(Exception):
    """Some record of those parsed together is no such event, or speaks for another."""


def decode(event_type: EventType, values: pa.Array, broker_times: pa.Array, future_limit: timedelta) -> pa.RecordBatch:
    """The records' columns, as `event_type.decoded_schema` has them."""
    parts = [
        part for start in range(0, len(values), _RECORDS) for part in _read(event_type, values.slice(start, _RECORDS))
    ]
    read = pa.concat_batches([_nothing(event_type, 0), *parts])
    return validate_columns(event_type, read, broker_times.cast(INSTANT), future_limit)


def _read(event_type: EventType, values: pa.Array) -> Iterator[pa.RecordBatch]:
    """The declared fields and `invalid`, as far as the bytes alone decide."""
    try:
        yield _parsed_together(event_type, values)
    except (_Unreadable, pa.ArrowInvalid):
        yield _sifted(event_type, values)


def _sifted(event_type: EventType, values: pa.Array) -> pa.RecordBatch:
    """The same where some record is bad. What is refused at once and what by halving changes only the speed."""
    raw = values.to_pylist()
    refused = pa.array([record_validation.is_certain(event_type, value) for value in raw], pa.bool_())
    reasons = [
        record_validation.invalid_reason(event_type, value) if no else None
        for value, no in zip(raw, refused.to_pylist(), strict=True)
    ]
    kept = pa.concat_batches([_nothing(event_type, 0), *_halved(event_type, values.filter(pc.invert(refused)))])
    places = pc.subtract(pc.cumulative_sum(pc.invert(refused).cast(pa.int64())), 1)
    read = kept.take(pc.if_else(refused, None, places))
    invalid = pc.coalesce(pa.array(reasons, pa.string()), read["invalid"])
    return _batch(event_type, [read[field.name] for field in event_type.fields], invalid)


def _halved(event_type: EventType, values: pa.Array) -> Iterator[pa.RecordBatch]:
    """Halves of halves, until each can be read or is a single record, which is then no such event."""
    if not len(values):
        return
    try:
        yield _parsed_together(event_type, values)
    except (_Unreadable, pa.ArrowInvalid):
        if len(values) == 1:
            yield _nothing(event_type, 1, record_validation.invalid_reason(event_type, values[0].as_py()))
            return
        half = len(values) // 2
        yield from _halved(event_type, values.slice(0, half))
        yield from _halved(event_type, values.slice(half))


def _parsed_together(event_type: EventType, values: pa.Array) -> pa.RecordBatch:
    """The fields of all these records, or _Unreadable: then at least one of them is at fault, or they are many."""
    if values.null_count or (values.nbytes > _BYTES and len(values) > 1):
        raise _Unreadable
    if not pc.all(pc.match_substring_regex(values, _OBJECT)).as_py():
        raise _Unreadable
    sentinel = f"sentinel-{secrets.token_hex(8)}"
    text = _lines(values, sentinel)
    if _has_bare_null(text):
        raise _Unreadable
    table = _parse(event_type, text, sentinel)
    if not _each_for_itself(table[sentinel], len(values)):
        raise _Unreadable
    table = table.take(_DATA_ROWS.slice(0, len(values))).combine_chunks()
    has_nul = _ESCAPED_NUL.search(text) is not None
    columns = [_converted(field, table[field.name].chunk(0), has_nul) for field in event_type.fields]
    return _batch(event_type, columns, pa.nulls(len(values), pa.string()))


def _lines(values: pa.Array, sentinel: str) -> pa.Buffer:
    """Record, sentinel, record, sentinel …; ArrowInvalid where a record is not UTF-8."""
    records = values.cast(pa.string())
    numbers = _NUMBERS.slice(0, len(values))
    joined = pc.binary_join_element_wise(records, f'\n{{"{sentinel}":', numbers, "}\n", "")
    return joined.buffers()[2]


def _has_bare_null(text: pa.Buffer) -> bool:
    """True if outside all strings a `null` follows the end of an object, which is never so in valid JSON.

    Between records Arrow's parser would take it for a row, and read memory that is not its own to do so
    (apache/arrow#47409). Strings are found as that parser finds them, up to where it would stop.
    """
    return bool(_BARE_NULL.search(text) and _BARE_NULL.search(_STRING.sub(b"", text)))


def _parse(event_type: EventType, text: pa.Buffer, sentinel: str) -> pa.Table:
    columns = [
        pa.field(field.name, pa.string() if field.python_type is datetime else field.arrow_type)
        for field in event_type.fields
    ]
    return pyarrow.json.read_json(
        pa.BufferReader(text),
        pyarrow.json.ReadOptions(use_threads=False, block_size=text.size + 1),
        pyarrow.json.ParseOptions(
            explicit_schema=pa.schema([*columns, pa.field(sentinel, pa.int64())]),
            newlines_in_values=True,
            unexpected_field_behavior="ignore",
        ),
    )


def _each_for_itself(sentinels: pa.ChunkedArray, records: int) -> bool:
    """True if the rows are one object, sentinel 0, one object, sentinel 1, … and nothing else."""
    return bool(sentinels.combine_chunks().equals(_SENTINELS.slice(0, 2 * records)))


def _converted(field: Field, column: pa.Array, has_nul: bool) -> pa.Array:
    """The column in its declared type and its one form."""
    if field.python_type is datetime:
        return _instants(column)
    if field.python_type is float:
        return _finite(column)
    if field.python_type is str and has_nul:
        return pc.replace_substring(column, "\x00", "\u2400")
    if field.python_type == list[str]:
        return _texts(column, has_nul)
    return column


def _instants(column: pa.Array) -> pa.Array:
    if column.null_count == len(column):
        return pa.nulls(len(column), INSTANT)
    if not pc.all(pc.match_substring_regex(column, _TIME)).as_py():
        raise _Unreadable
    times = column.cast(INSTANT)  # refuses 30 February
    span = pc.min_max(times.cast(pa.int64())).as_py()
    if not EARLIEST <= span["min"] <= span["max"] <= LATEST:
        raise _Unreadable
    return times


def _finite(column: pa.Array) -> pa.Array:
    if not pc.all(pc.is_finite(column), min_count=0).as_py():
        raise _Unreadable
    return pc.add(column, 0.0)  # -0.0 becomes 0.0


def _texts(column: pa.ListArray, has_nul: bool) -> pa.ListArray:
    if column.flatten().null_count:
        raise _Unreadable
    if not has_nul:
        return column
    texts = pc.replace_substring(column.values, "\x00", "\u2400")
    return pa.ListArray.from_arrays(column.offsets, texts, mask=column.is_null())


def _batch(event_type: EventType, columns: list[pa.Array], invalid: pa.Array) -> pa.RecordBatch:
    return pa.record_batch([*columns, invalid], [*(field.name for field in event_type.fields), "invalid"])


def _nothing(event_type: EventType, rows: int, reason: str = "") -> pa.RecordBatch:
    columns = [pa.nulls(rows, field.arrow_type) for field in event_type.fields]
    return _batch(event_type, columns, pa.array([reason] * rows, pa.string()))
