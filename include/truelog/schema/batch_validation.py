"""Validation of parsed records against their event type, column by column.

An invalid record is NULL in every column except `invalid`, which contains the first reason. The fields are checked in
order, followed by the required fields and by `event_time`. No check depends on another row.
"""

from collections.abc import Iterator, Sequence
from datetime import timedelta

import pyarrow as pa
import pyarrow.compute as pc

from truelog.schema.event import EventType
from truelog.schema.field import INSTANT, Field
from truelog.schema.instants import EARLIEST, LATEST
from truelog.schema.required import Required

_MICROSECOND = timedelta(microseconds=1)


def validate_columns(
    event_type: EventType,
    parsed: pa.RecordBatch,
    broker_times: pa.Array,
    future_limit: timedelta,
    *,
    checked: Sequence[Field],
) -> pa.RecordBatch:
    """Validate these fields and the rules of the event type: return the parsed fields, `event_time` and `invalid`."""
    broker = broker_times.cast(pa.int64())
    receipt = pc.coalesce(parsed["received_at"].cast(pa.int64()), broker)
    event_time = _event_time(parsed, receipt)
    # The limit also uses the broker's time, so that a producer cannot raise the limit with a forged `received_at`.
    latest = pc.add(pc.min_element_wise(receipt, broker), future_limit // _MICROSECOND)
    reasons = [reason for field in checked for reason in _field_errors(field, parsed[field.name])]
    reasons += [reason for rule in event_type.required for reason in _missing(rule, parsed)]
    reasons += _time_errors(event_time, latest, future_limit)
    unreadable = parsed["invalid"] if "invalid" in parsed.schema.names else pa.nulls(parsed.num_rows, pa.string())
    invalid = pc.coalesce(unreadable, *reasons)
    columns = {field.name: parsed[field.name] for field in event_type.fields if field.name in parsed.schema.names}
    columns["event_time"] = event_time
    if invalid.null_count < len(invalid):
        columns = {name: pc.if_else(invalid.is_null(), column, None) for name, column in columns.items()}
    columns["event_time"] = columns["event_time"].cast(INSTANT)
    names = [name for name in event_type.decoded_schema.names if name in columns]
    return pa.record_batch([*(columns[name] for name in names), invalid], [*names, "invalid"])


def _event_time(parsed: pa.RecordBatch, receipt: pa.Array) -> pa.Array:
    """The event's time in microseconds: the device's time, corrected by the clock error at the time of sending."""
    correction = pc.subtract(receipt, parsed["sent_at"].cast(pa.int64()))
    return pc.add(parsed["occurred_at"].cast(pa.int64()), pc.coalesce(correction, 0))


def _time_errors(event_time: pa.Array, latest: pa.Array, limit: timedelta) -> Iterator[pa.Array]:
    outside = pc.or_(pc.less(event_time, EARLIEST), pc.greater(event_time, LATEST))
    yield from _reason(outside, "event_time: outside the years 1 to 9999")
    future = pc.greater(event_time, latest)
    yield from _reason(future, f"event_time: more than {limit.total_seconds():g} s after its receipt")


def _field_errors(field: Field, column: pa.Array) -> Iterator[pa.Array]:
    """One array of reasons for each rule of the field that at least one record breaks."""
    if field.required and column.null_count:
        yield from _reason(column.is_null(), f"{field.name}: missing")
    if field.least is not None or field.most is not None:
        yield from _bound_errors(f"{field.name}:", column, field.least, field.most)
    if field.shortest is not None or field.longest is not None:
        yield from _bound_errors(f"{field.name}: length", _lengths(column), field.shortest, field.longest)
    if field.values:
        unknown = pc.and_(column.is_valid(), pc.invert(_is_in(column, field.values)))
        yield from _reason(unknown, f"{field.name}: not one of {', '.join(field.values)}")


def _missing(rule: Required, parsed: pa.RecordBatch) -> Iterator[pa.Array]:
    missing = pc.and_(_is_in(parsed[rule.when], rule.is_in), parsed[rule.field].is_null())
    yield from _reason(missing, f"{rule.field}: {rule.reason}")


def _is_in(column: pa.Array, values: Sequence[str]) -> pa.Array:
    return pc.is_in(column, pa.array(values, pa.string()))


def _bound_errors(label: str, numbers: pa.Array, least: float | None, most: float | None) -> Iterator[pa.Array]:
    span = pc.min_max(numbers).as_py()
    if least is not None and span["min"] is not None and span["min"] < least:
        yield from _reason(pc.less(numbers, least), label, numbers, f"is below {least}")
    if most is not None and span["max"] is not None and span["max"] > most:
        yield from _reason(pc.greater(numbers, most), label, numbers, f"is above {most}")


def _lengths(column: pa.Array) -> pa.Array:
    """The number of characters in each text, or of elements in each list."""
    return pc.list_value_length(column) if pa.types.is_list(column.type) else pc.utf8_length(column)


def _reason(condition: pa.Array, *words: str | pa.Array) -> Iterator[pa.Array]:
    """The words in each row that meets the condition, and NULL in all other rows. Yields nothing if no row meets it."""
    if pc.any(condition).as_py():
        texts = [word if isinstance(word, str) else word.cast(pa.string()) for word in words]
        text = pc.binary_join_element_wise(*texts, " ") if len(texts) > 1 else pa.scalar(texts[0])
        yield pc.if_else(condition, text, pa.scalar(None, pa.string()))
