"""Plain records: nearly all records of a log. msgspec parses them in a fraction of the time that other records need.

A record is plain if it is one JSON object that has each field at most once and whose declared fields are within their
bounds and have allowed values. All parsers agree about such a record. `truelog.schema.decode` judges every other record
in another way, and reports why a record is invalid. A plain record may be left to it: the result is the same, and only
takes longer.

msgspec keeps the last of several equal fields, and by then the others are lost. Therefore each parsed record is written
again. If this takes as many quotation marks as the record has, then no field was lost, because each field has two.

msgspec parses only fields that it knows. Undeclared fields that recur are learned from a sample of the records.
"""

import math
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from itertools import compress, pairwise
from operator import attrgetter
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import UNSET, Meta, UnsetType
from numpy.typing import NDArray

from truelog.schema.event import EventType
from truelog.schema.field import INT64_MAX, INT64_MIN, Field
from truelog.schema.instants import parse_instants_or_null

Mask = NDArray[np.bool_]

_NOT_PLAIN = (msgspec.MsgspecError, ValueError, TypeError, RecursionError)
_NOT_WRITABLE = (ValueError, OverflowError, RecursionError)
_UNLIMITED = (("ge", -math.inf), ("le", math.inf))  # msgspec refuses these bounds
_RECORDS = 4_096  # parsed at a time; the objects of more records do not fit into the processor's cache
_BYTES = 16 * 2**20  # the same, for large records: several copies exist at a time
_SAMPLE = 64
_LEARNED = 64  # at most so many undeclared fields are known at a time


@dataclass(frozen=True)
class PlainRecords:
    """Which records are plain, and the fields of these records."""

    mask: Mask
    columns: pa.RecordBatch


def parse_plain(event_type: EventType, values: pa.Array, wanted: Collection[str]) -> PlainRecords:
    """Find and parse the plain records.

    The columns are the wanted fields, all fields that contain a time, and the fields that decide about required fields.
    """
    wanted = {*wanted, *(name for rule in event_type.required for name in (rule.field, rule.when))}
    parts = [_parse_part(event_type, values.slice(start, end - start), wanted) for start, end in _parts(values)]
    masks, columns = [each.mask for each in parts], [each.columns for each in parts]
    return PlainRecords(np.concatenate(masks), pa.concat_batches(columns))


def _parts(values: pa.Array) -> list[tuple[int, int]]:
    """Where parts of the records start and end."""
    starts = _starts(values)
    by_size = np.searchsorted(starts, np.arange(starts[0], starts[-1], _BYTES))
    ends = np.unique([*range(0, len(values), _RECORDS), *by_size, len(values)]).tolist()
    return list(pairwise(ends)) or [(0, 0)]


def _parse_part(event_type: EventType, values: pa.Array, wanted: Collection[str]) -> PlainRecords:
    """Each step removes the records that it finds not to be plain."""
    objects = _parser(event_type).parse(_without_nul(values))
    mask = np.fromiter((each is not None for each in objects), np.bool_, len(objects))
    fields = [each for each in event_type.fields if each.name in wanted or each.python_type is datetime]
    if not mask.any():
        return PlainRecords(mask, pa.record_batch({each.name: pa.nulls(0, each.arrow_type) for each in fields}))
    objects = _only(objects, mask)
    complete = _is_complete(objects, values if mask.all() else values.filter(pa.array(mask)))
    objects, mask[mask] = _only(objects, complete), complete
    columns = {each.name: _array(each, objects) for each in fields}
    timely = np.ones(len(objects), np.bool_)
    for field in fields:
        if field.python_type is datetime:
            texts = columns[field.name]
            columns[field.name] = parse_instants_or_null(texts)
            timely &= _is_equal(texts.is_null(), columns[field.name].is_null())
    mask[mask] = timely
    found = pa.record_batch(columns)
    return PlainRecords(mask, found if timely.all() else found.filter(pa.array(timely)))


def _is_equal(one: pa.Array, other: pa.Array) -> Mask:
    return np.asarray(pc.equal(one, other).to_numpy(zero_copy_only=False))


def _without_nul(values: pa.Array) -> pa.Array:
    """The records, with NULL in place of each record with U+0000, which decoding changes."""
    if b"\\" not in _text(values):
        return values
    has_nul = pc.match_substring(values, r"\u0000")
    return pc.if_else(has_nul, None, values) if pc.any(has_nul).as_py() else values


def _only(objects: list[Any], mask: Mask) -> list[Any]:
    return objects if mask.all() else list(compress(objects, mask))


class _Parser:
    """Parses the records of an event type, and learns their undeclared fields.

    What it has learned decides how long decoding takes, but never the result.
    """

    def __init__(self, event_type: EventType) -> None:
        self._fields = event_type.fields
        self._declared = frozenset(each.name for each in event_type.fields)
        self._learned: frozenset[str] = frozenset()
        self._decode = self._decoder()

    def parse(self, values: pa.Array) -> list[Any]:
        """An object for each record, or None if the record is not plain. No object if few of a sample are plain.

        Records that are not plain are parsed twice, and many of them would cost more time than the others save.
        """
        sample = values.slice(0, _SAMPLE).to_pylist()
        parsed = self._parse(sample)
        if None in parsed and self._learn([raw for raw, each in zip(sample, parsed, strict=True) if each is None]):
            parsed = self._parse(sample)
        if 4 * parsed.count(None) > len(sample):
            return [None] * len(values)
        return parsed + self._parse(values.slice(_SAMPLE).to_pylist())

    def _parse(self, records: list[bytes | None]) -> list[Any]:
        parsed: list[Any] = []
        objects = map(self._decode, records)
        while len(parsed) < len(records):
            try:
                parsed.extend(objects)
            except _NOT_PLAIN:
                parsed.append(None)
        return parsed

    def _learn(self, records: list[bytes | None]) -> bool:
        """Learn the undeclared fields that at least two of these records have. True if something was learned."""
        counts = Counter(name for record in records for name in _names(record))
        new = {name for name, count in counts.items() if count > 1 and _is_simple(name)}
        new -= self._declared | self._learned
        if not new:
            return False
        together = self._learned | new
        self._learned = together if len(together) <= _LEARNED else frozenset(sorted(new)[:_LEARNED])
        self._decode = self._decoder()
        return True

    def _decoder(self) -> Callable[[Any], Any]:
        required = [(each.name, _bounded(each)) for each in self._fields if each.required]
        optional = [(e.name, _bounded(e) | None | UnsetType, UNSET) for e in self._fields if not e.required]
        names = {f"_{number}": name for number, name in enumerate(sorted(self._learned))}
        learned = [(each, Any, UNSET) for each in names]
        shape = msgspec.defstruct(
            "Plain", [*required, *optional, *learned], rename=names, kw_only=True, gc=False, forbid_unknown_fields=True
        )
        return msgspec.json.Decoder(shape).decode


# A parser for each version of each event type; more than there are, but not without a limit.
_parser = lru_cache(maxsize=256)(_Parser)


def _names(record: bytes | None) -> Collection[str]:
    """The names of the record's fields, if it is a JSON object."""
    try:
        found = msgspec.json.decode(record or b"")
    except _NOT_PLAIN:
        return ()
    return found if isinstance(found, dict) else ()


def _is_simple(name: str) -> bool:
    """Whether msgspec can have a field of this name, and the name is not too long to be kept."""
    return len(name) <= 128 and name.isprintable() and not set(name) & {'"', "\\"}


def _bounded(field: Field) -> Any:
    """The type of a field with its bounds, as msgspec checks them. Times are texts, and are parsed by column."""
    if field.values:
        return Literal[field.values]
    kind = str if field.python_type is datetime else field.python_type
    limits = {"ge": field.least, "le": field.most, "min_length": field.shortest, "max_length": field.longest}
    limits = {n: limit for n, limit in limits.items() if limit is not None and (n, limit) not in _UNLIMITED}
    if kind is int:
        limits = {"ge": INT64_MIN, "le": INT64_MAX} | limits
    meta: Any = Meta
    return Annotated[kind, meta(**limits)]


def _is_complete(objects: list[Any], values: pa.Array) -> Mask:
    """Whether each record has as many quotation marks as its object, because then no field was lost."""
    marks = _marks(_text(values))
    try:
        if np.count_nonzero(marks) == np.count_nonzero(_marks(msgspec.json.encode(objects))):
            return np.ones(len(objects), np.bool_)
    except _NOT_WRITABLE:
        pass
    starts = _starts(values)
    counts = np.diff(np.searchsorted(np.flatnonzero(marks), starts - starts[0]))
    return np.asarray(counts == np.fromiter(map(_marks_written, objects), np.int64, len(objects)))


def _marks_written(parsed: Any) -> int:
    try:
        return int(np.count_nonzero(_marks(msgspec.json.encode(parsed))))
    except _NOT_WRITABLE:
        return -1


def _marks(text: bytes) -> Mask:
    """Where quotation marks begin or end a text in JSON. A backslash precedes the other quotation marks."""
    codes = np.frombuffer(text, np.uint8)
    marks: Mask = codes == ord('"')
    if b"\\" in text:
        backslashes = np.flatnonzero(codes == ord("\\"))
        firsts = np.flatnonzero(np.diff(backslashes, prepend=-2) > 1)  # of the backslashes in a row
        places = np.arange(len(backslashes)) - np.repeat(firsts, np.diff(firsts, append=len(backslashes)))
        marks[backslashes[places % 2 == 0] + 1] = False
    return marks


def _array(field: Field, objects: list[Any]) -> pa.Array:
    """A field of all objects, with times as texts."""
    column = list(map(attrgetter(field.name), objects))
    if not field.required and UNSET in column:
        column = [None if each is UNSET else each for each in column]
    array = pa.array(column, pa.string() if field.python_type is datetime else field.arrow_type)
    return pc.add(array, 0.0) if field.python_type is float else array  # -0.0 becomes 0.0


def _text(values: pa.Array) -> bytes:
    """The bytes of all values."""
    starts, data = _starts(values), values.buffers()[2]
    return b"" if data is None else bytes(memoryview(data)[starts[0] : starts[-1]])


def _starts(values: pa.Array) -> NDArray[np.int32]:
    """Where each value starts in the data of the array, and where the last one ends."""
    if not len(values):
        return np.zeros(1, np.int32)  # an empty array need not have buffers
    return np.frombuffer(values.buffers()[1], np.int32)[values.offset : values.offset + len(values) + 1]
