"""Soundness: whether records that could be read keep what their event type declares, checked a column at a time.

A record that does not is NULL in every column but `invalid`, which says why: the first reason in the order of
the fields, then those about `event_time`. Nothing here looks at another row.
"""

from collections.abc import Iterator
from datetime import timedelta

import pyarrow as pa
import pyarrow.compute as pc

from truelog.schema.event import EventType
from truelog.schema.field import INSTANT, Field
from truelog.support import timestamps

EARLIEST, LATEST = (
    pa.scalar(end, INSTANT).cast(pa.int64()).as_py() for end in (timestamps.EARLIEST, timestamps.LATEST)
)
_MICROSECOND = timedelta(microseconds=1)


def validate_columns(
    event_type: EventType, read: pa.RecordBatch, broker_times: pa.Array, future_limit: timedelta
) -> pa.RecordBatch:
    """What was read, with `event_time`, in the columns of `event_type.decoded_schema`."""
    broker = broker_times.cast(pa.int64())
    receipt = pc.coalesce(read["received_at"].cast(pa.int64()), broker)
    event_time = _event_time(read, receipt)
    # A producer cannot stamp itself a receipt later than the broker's own time.
    latest = pc.add(pc.min_element_wise(receipt, broker), future_limit // _MICROSECOND)
    reasons = [reason for field in event_type.fields for reason in _broken(field, read[field.name])]
    reasons += _misplaced(event_time, latest, future_limit)
    invalid = pc.coalesce(read["invalid"], *reasons)
    columns = {field.name: read[field.name] for field in event_type.fields}
    columns["event_time"] = event_time
    if invalid.null_count < len(invalid):
        columns = {name: pc.if_else(invalid.is_null(), column, None) for name, column in columns.items()}
    columns["event_time"] = columns["event_time"].cast(INSTANT)
    ordered = [columns[name] for name in event_type.arrow_schema.names]
    return pa.record_batch([*ordered, invalid], schema=event_type.decoded_schema)


def _event_time(read: pa.RecordBatch, receipt: pa.Array) -> pa.Array:
    """When it happened, in microseconds: the device's time, corrected by what its clock showed when sending."""
    correction = pc.subtract(receipt, read["sent_at"].cast(pa.int64()))
    return pc.add(read["occurred_at"].cast(pa.int64()), pc.coalesce(correction, 0))


def _misplaced(event_time: pa.Array, latest: pa.Array, limit: timedelta) -> Iterator[pa.Array]:
    outside = pc.or_(pc.less(event_time, EARLIEST), pc.greater(event_time, LATEST))
    yield from _reason(outside, "event_time: outside the years 1 to 9999")
    future = pc.greater(event_time, latest)
    yield from _reason(future, f"event_time: more than {limit.total_seconds():g} s after its receipt")


def _broken(field: Field, column: pa.Array) -> Iterator[pa.Array]:
    """The reasons that this field gives, one array for each rule that some record breaks."""
    if field.required and column.null_count:
        yield from _reason(column.is_null(), f"{field.name}: missing")
    if field.least is not None or field.most is not None:
        yield from _beyond(field.name, column, field.least, field.most)
    if field.shortest is not None or field.longest is not None:
        yield from _beyond(f"{field.name}: length", _lengths(column), field.shortest, field.longest)


def _beyond(name: str, amounts: pa.Array, least: float | None, most: float | None) -> Iterator[pa.Array]:
    what = name if ":" in name else f"{name}:"
    span = pc.min_max(amounts).as_py()
    if least is not None and span["min"] is not None and span["min"] < least:
        yield from _reason(pc.less(amounts, least), what, amounts, f"is below {least}")
    if most is not None and span["max"] is not None and span["max"] > most:
        yield from _reason(pc.greater(amounts, most), what, amounts, f"is above {most}")


def _lengths(column: pa.Array) -> pa.Array:
    """Characters of text, elements of lists."""
    return pc.list_value_length(column) if pa.types.is_list(column.type) else pc.utf8_length(column)


def _reason(holds: pa.Array, *words: str | pa.Array) -> Iterator[pa.Array]:
    """The words where the condition holds, NULL elsewhere; nothing where it holds nowhere."""
    if pc.any(holds).as_py():
        said = [word if isinstance(word, str) else word.cast(pa.string()) for word in words]
        text = pc.binary_join_element_wise(*said, " ") if len(said) > 1 else pa.scalar(said[0])
        yield pc.if_else(holds, text, pa.scalar(None, pa.string()))
