"""Plain records: nearly all records of a log. msgspec parses them in a fraction of the time that other records need.

A record is plain if it is one JSON object that has only declared fields, each at most once and within its bounds, and
no escaped characters. All parsers agree about such a record. `truelog.schema.decode` judges every other record.

The quotation marks prove that a record has no other field and no field twice. Without escaped characters, a record has
two of them for each key and for each text. msgspec ignores unknown fields and keeps the last of several equal keys, so
a record with such a field has more quotation marks than the parsed object accounts for.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from itertools import compress
from operator import attrgetter
from typing import Annotated, Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import UNSET, Meta, UnsetType
from numpy.typing import NDArray

from truelog.schema.event import EventType
from truelog.schema.field import INT64_MAX, INT64_MIN, Field
from truelog.schema.instants import parse_instants
from truelog.support import timestamps

Mask = NDArray[np.bool_]
Columns = dict[str, list[Any]]  # the fields of some objects; an absent optional field is UNSET

_QUOTE, _BACKSLASH = b'"\\'
_NOT_PLAIN = (msgspec.MsgspecError, ValueError, TypeError, RecursionError)
_RECORDS = 4_096  # parsed at a time; the objects of more records do not fit into the processor's cache


@dataclass(frozen=True)
class PlainRecords:
    """Which records are plain, and the fields of these records."""

    mask: Mask
    columns: pa.RecordBatch


def parse_plain(event_type: EventType, values: pa.Array, wanted: Collection[str]) -> PlainRecords:
    """Find and parse the plain records. The columns are the wanted fields and all fields that contain a time."""
    starts = range(0, max(1, len(values)), _RECORDS)
    parts = [_parse_part(event_type, values.slice(start, _RECORDS), wanted) for start in starts]
    masks, columns = [each.mask for each in parts], [each.columns for each in parts]
    return PlainRecords(np.concatenate(masks), pa.concat_batches(columns))


def _parse_part(event_type: EventType, values: pa.Array, wanted: Collection[str]) -> PlainRecords:
    objects = _parse(event_type, values)
    mask = np.fromiter((each is not None for each in objects), np.bool_, len(objects)) & ~_escaped(values)
    objects = _only(objects, mask)
    columns = {each.name: list(map(attrgetter(each.name), objects)) for each in event_type.fields}
    for is_plain in (_is_accounted_for, _has_times):
        kept = is_plain(event_type, columns, values.filter(pa.array(mask)))
        columns = {name: _only(column, kept) for name, column in columns.items()}
        mask[mask] = kept
    fields = [each for each in event_type.fields if each.name in wanted or each.python_type is datetime]
    arrays = [_array(each, columns[each.name]) for each in fields]
    return PlainRecords(mask, pa.record_batch(arrays, [each.name for each in fields]))


def _only(column: list[Any], mask: Mask) -> list[Any]:
    return column if mask.all() else list(compress(column, mask))


def _parse(event_type: EventType, values: pa.Array) -> list[Any]:
    """An object for each record, or None if the record is not plain."""
    parsed: list[Any] = []
    objects = map(_decoder(event_type), values.to_pylist())
    while len(parsed) < len(values):
        try:
            parsed.extend(objects)
        except _NOT_PLAIN:
            parsed.append(None)
    return parsed


@cache
def _decoder(event_type: EventType) -> Callable[[bytes], Any]:
    required = [(each.name, _bounded(each)) for each in event_type.fields if each.required]
    optional = [(e.name, _bounded(e) | None | UnsetType, UNSET) for e in event_type.fields if not e.required]
    shape = msgspec.defstruct("Plain", [*required, *optional], kw_only=True, gc=False)
    return msgspec.json.Decoder(shape).decode


def _bounded(field: Field) -> Any:
    """The type of a field with its bounds, as msgspec checks them. Times are texts, and are parsed by column."""
    kind = str if field.python_type is datetime else field.python_type
    limits = {"ge": field.least, "le": field.most, "min_length": field.shortest, "max_length": field.longest}
    limits = {name: limit for name, limit in limits.items() if limit is not None}
    if kind is int:
        limits = {"ge": INT64_MIN, "le": INT64_MAX} | limits
    meta: Any = Meta
    return Annotated[kind, meta(**limits)]


def _escaped(values: pa.Array) -> Mask:
    """Whether each record has an escaped character."""
    if not (_bytes(values) == _BACKSLASH).any():
        return np.zeros(len(values), np.bool_)
    return np.asarray(pc.fill_null(pc.match_substring(values, "\\"), False).to_numpy(zero_copy_only=False))


def _is_accounted_for(event_type: EventType, columns: Columns, values: pa.Array) -> Mask:
    """Whether each record has no quotation marks besides those of its parsed keys and texts. No record has fewer."""
    marks = sum(_marks_together(field, columns[field.name]) for field in event_type.fields)
    if marks == np.count_nonzero(_bytes(values) == _QUOTE):
        return np.ones(len(values), np.bool_)
    each = sum(_marks_of_each(field, columns[field.name]) for field in event_type.fields)
    return np.asarray(pc.count_substring(values, '"').to_numpy() == each)


def _marks_together(field: Field, column: list[Any]) -> int:
    """How many quotation marks a field has in all records together."""
    absent, null = (0, 0) if field.required else (column.count(UNSET), column.count(None))
    keys, known = len(column) - absent, len(column) - absent - null
    texts = known if field.python_type in (str, datetime) else 0
    if field.python_type == list[str]:
        texts = sum(len(each) for each in column if each)
    return 2 * (keys + texts)


def _marks_of_each(field: Field, column: list[Any]) -> NDArray[np.int64]:
    """How many quotation marks a field has in each record."""
    return np.fromiter((_marks_together(field, [each]) for each in column), np.int64, len(column))


def _has_times(event_type: EventType, columns: Columns, _: pa.Array) -> Mask:
    """Whether all times of each record are timestamps."""
    times = [each for each in event_type.fields if each.python_type is datetime]
    kept = np.ones(len(columns[times[0].name]), np.bool_)
    for field in times:
        try:
            _array(field, columns[field.name])
        except pa.ArrowInvalid:
            kept &= np.fromiter(map(_is_time, columns[field.name]), np.bool_, len(kept))
    return kept


def _is_time(text: Any) -> bool:
    try:
        return text is UNSET or text is None or bool(timestamps.parse_timestamp(text))
    except ValueError:
        return False


def _array(field: Field, column: list[Any]) -> pa.Array:
    """A column in its declared type and in canonical form."""
    absent = 0 if field.required else column.count(UNSET)
    if absent == len(column):
        return pa.nulls(len(column), field.arrow_type)
    known = [None if each is UNSET else each for each in column] if absent else column
    if field.python_type is datetime:
        return parse_instants(pa.array(known, pa.string()))
    array = pa.array(known, field.arrow_type)
    return pc.add(array, 0.0) if field.python_type is float else array  # -0.0 becomes 0.0


def _bytes(values: pa.Array) -> NDArray[np.uint8]:
    """The bytes of all values."""
    _, offsets, data = values.buffers()
    if data is None:
        return np.empty(0, np.uint8)
    ends = np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values) + 1]
    return np.frombuffer(data, np.uint8)[ends[0] : ends[-1]]
