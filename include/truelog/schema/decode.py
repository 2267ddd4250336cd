"""The decoder: raw records into the typed columns of their event type.

Each record becomes one row, in order, with the columns of `event_type.decoded_schema`. If the record is not a valid
event, `invalid` contains the reason and all other columns are NULL. A row depends only on its own record and on that
record's broker time.

Nearly all records are plain, and msgspec parses them (`truelog.schema.plain_records`). `decode_others` could decode
every record, with the same result. It decodes the records that are not plain:

1. Records that Arrow's parser must not see are withheld from it.
2. The other records are parsed together. A sentinel follows each record: an object with a random field name and the
   record's number. If exactly one object precedes each sentinel, no record has affected another.
3. If anything fails, records that are certainly invalid are removed, and the rest is split into halves, down to single
   records. The result for a record is the result of parsing it alone.
4. Required fields, bounds, allowed values, event_time and the future limit are checked by column
   (`truelog.schema.batch_validation`).

The decoder accepts what `event_type.model` accepts if no required field is missing (`truelog.schema.required`), and
returns the same values, with two exceptions, on which parsers disagree: a record with a duplicate declared field
(pydantic takes the last value), and a record with a number outside the range of float, such as 1e400. The decoder
treats both as invalid. Conversely, unknown fields may be nested more deeply and contain longer numbers than pydantic's
parser accepts.
U+0000 in text becomes U+2400, because PostgreSQL cannot store U+0000. -0.0 becomes 0.0.
"""

import re
import secrets
from collections.abc import Collection, Iterator
from datetime import datetime, timedelta

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from truelog.schema import record_validation
from truelog.schema.batch_validation import validate_columns
from truelog.schema.event import EventType
from truelog.schema.field import INSTANT, Field
from truelog.schema.instants import parse_instants
from truelog.schema.plain_records import parse_plain

# Batch size: large enough to spread the cost of a call, small enough that an invalid record delays few others.
_RECORDS, _BYTES = 1024, 64 * 2**20

_NUMBERS = pa.array([str(number) for number in range(_RECORDS)])
_DATA_ROWS = pa.array(range(0, 2 * _RECORDS, 2), pa.int32())
_SENTINELS = pa.array([row // 2 if row % 2 else None for row in range(2 * _RECORDS)], pa.int64())

_OBJECT = r"^[ \t\r\n]*\{"
_BARE_NULL = re.compile(rb"\}[ \t\r\n]*null")
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_ESCAPED_NUL = re.compile(rb"\\u0000")


class _Unreadable(Exception):
    """At least one record of a batch is invalid or affects another record."""


def decode(
    event_type: EventType,
    values: pa.Array,
    broker_times: pa.Array,
    future_limit: timedelta,
    columns: Collection[str] | None = None,
) -> pa.RecordBatch:
    """Decode the records into the columns of `event_type.decoded_schema`, or into these columns of it and `invalid`."""
    every = event_type.decoded_schema.names
    wanted = every if columns is None else {*columns, "invalid"}
    names = [name for name in every if name in wanted]
    values, times = values.cast(pa.binary()), broker_times.cast(INSTANT)
    plain = parse_plain(event_type, values, wanted)
    if not plain.mask.any():
        return decode_others(event_type, values, times, future_limit).select(names)
    is_plain = pa.array(plain.mask)
    found = validate_columns(event_type, plain.columns, times.filter(is_plain), future_limit, checked=()).select(names)
    if plain.mask.all():
        return found
    is_other = pc.invert(is_plain)
    others = decode_others(event_type, values.filter(is_other), times.filter(is_other), future_limit).select(names)
    order = np.argsort(np.concatenate([np.flatnonzero(plain.mask), np.flatnonzero(~plain.mask)]))
    return pa.concat_batches([found, others]).take(pa.array(order))


def decode_others(event_type: EventType, values: pa.Array, times: pa.Array, future_limit: timedelta) -> pa.RecordBatch:
    """Decode records that need not be plain. `decode` has the same result, and takes less time for plain records."""
    parts = [
        part for start in range(0, len(values), _RECORDS) for part in _parsed(event_type, values.slice(start, _RECORDS))
    ]
    parsed = pa.concat_batches([_nulls(event_type, 0), *parts])
    return validate_columns(event_type, parsed, times, future_limit, checked=event_type.fields)


def _parsed(event_type: EventType, values: pa.Array) -> Iterator[pa.RecordBatch]:
    """The declared fields, and `invalid` for records that cannot be parsed."""
    try:
        yield _parsed_together(event_type, values)
    except (_Unreadable, pa.ArrowInvalid):
        yield _parsed_without_invalid(event_type, values)


def _parsed_without_invalid(event_type: EventType, values: pa.Array) -> pa.RecordBatch:
    """Parse a batch that contains invalid records. Detecting some of them beforehand only saves time."""
    raw = values.to_pylist()
    rejected = pa.array([record_validation.is_certainly_invalid(event_type, value) for value in raw], pa.bool_())
    reasons = [
        record_validation.invalid_reason(event_type, value) if is_rejected else None
        for value, is_rejected in zip(raw, rejected.to_pylist(), strict=True)
    ]
    is_left = pc.invert(rejected)
    left = pa.concat_batches([_nulls(event_type, 0), *_parsed_by_halves(event_type, values.filter(is_left))])
    indices = pc.subtract(pc.cumulative_sum(is_left.cast(pa.int64())), 1)
    parsed = left.take(pc.if_else(rejected, None, indices))
    invalid = pc.coalesce(pa.array(reasons, pa.string()), parsed["invalid"])
    return _batch(event_type, [parsed[field.name] for field in event_type.fields], invalid)


def _parsed_by_halves(event_type: EventType, values: pa.Array) -> Iterator[pa.RecordBatch]:
    """Split the records until each part can be parsed. A single record that cannot be parsed is invalid."""
    if not len(values):
        return
    try:
        yield _parsed_together(event_type, values)
    except (_Unreadable, pa.ArrowInvalid):
        if len(values) == 1:
            yield _nulls(event_type, 1, record_validation.invalid_reason(event_type, values[0].as_py()))
            return
        half = len(values) // 2
        yield from _parsed_by_halves(event_type, values.slice(0, half))
        yield from _parsed_by_halves(event_type, values.slice(half))


def _parsed_together(event_type: EventType, values: pa.Array) -> pa.RecordBatch:
    """The fields of all records.

    Raises:
        _Unreadable: at least one record is invalid, or the records are too large to be parsed at once.
        pa.ArrowInvalid: at least one record is invalid.
    """
    if values.null_count or (values.nbytes > _BYTES and len(values) > 1):
        raise _Unreadable
    if not pc.all(pc.match_substring_regex(values, _OBJECT)).as_py():
        raise _Unreadable
    sentinel = f"sentinel-{secrets.token_hex(8)}"
    text = _lines(values, sentinel)
    if _has_bare_null(text):
        raise _Unreadable
    table = _parse(event_type, text, sentinel)
    if not _is_one_object_each(table[sentinel], len(values)):
        raise _Unreadable
    table = table.take(_DATA_ROWS.slice(0, len(values))).combine_chunks()
    has_nul = _ESCAPED_NUL.search(text) is not None
    columns = [_converted(field, table[field.name].chunk(0), has_nul) for field in event_type.fields]
    return _batch(event_type, columns, pa.nulls(len(values), pa.string()))


def _lines(values: pa.Array, sentinel: str) -> pa.Buffer:
    """Text lines: record, sentinel, record, sentinel … Raises ArrowInvalid if a record is not UTF-8."""
    records = values.cast(pa.string())
    numbers = _NUMBERS.slice(0, len(values))
    joined = pc.binary_join_element_wise(records, f'\n{{"{sentinel}":', numbers, "}\n", "")
    return joined.buffers()[2]


def _has_bare_null(text: pa.Buffer) -> bool:
    """True if a `null` outside all strings follows the end of an object. Such text is never valid JSON.

    Between records, Arrow's parser would read such a `null` as a row and access memory out of bounds
    (apache/arrow#47409). Strings are matched the way that parser matches them, up to the point where it would stop.
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


def _is_one_object_each(sentinels: pa.ChunkedArray, records: int) -> bool:
    """True if the rows are one object, sentinel 0, one object, sentinel 1, … and nothing else."""
    return bool(sentinels.combine_chunks().equals(_SENTINELS.slice(0, 2 * records)))


def _converted(field: Field, column: pa.Array, has_nul: bool) -> pa.Array:
    """The column in its declared type and in canonical form."""
    if field.python_type is datetime:
        return parse_instants(column)
    if field.python_type is float:
        return _finite(column)
    if field.python_type is str and has_nul:
        return pc.replace_substring(column, "\x00", "\u2400")
    if field.python_type == list[str]:
        return _texts(column, has_nul)
    return column


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


def _nulls(event_type: EventType, rows: int, reason: str = "") -> pa.RecordBatch:
    columns = [pa.nulls(rows, field.arrow_type) for field in event_type.fields]
    return _batch(event_type, columns, pa.array([reason] * rows, pa.string()))
