"""Instants: columns of timestamps in the format of `truelog.support.timestamps`, parsed together."""

from contextlib import suppress

import pyarrow as pa
import pyarrow.compute as pc

from truelog.schema.field import INSTANT
from truelog.support import timestamps

EARLIEST, LATEST = (
    pa.scalar(end, INSTANT).cast(pa.int64()).as_py() for end in (timestamps.EARLIEST, timestamps.LATEST)
)
_TIME = f"^(?:{timestamps.PATTERN})$"


def parse_instants(column: pa.Array) -> pa.Array:
    """The timestamps as instants in UTC. Raises pa.ArrowInvalid if at least one text is not a timestamp."""
    if column.null_count == len(column):
        return pa.nulls(len(column), INSTANT)
    if not pc.all(pc.match_substring_regex(column, _TIME)).as_py():
        raise pa.ArrowInvalid(timestamps.REFUSED)
    times = column.cast(INSTANT)  # rejects 30 February
    span = pc.min_max(times.cast(pa.int64())).as_py()
    if not EARLIEST <= span["min"] <= span["max"] <= LATEST:
        raise pa.ArrowInvalid(timestamps.REFUSED)
    return times


def parse_instants_or_null(column: pa.Array) -> pa.Array:
    """The timestamps as instants in UTC, with NULL for a text that is not a timestamp."""
    for timestamps_of in (_all, _in_format, _in_calendar):
        with suppress(pa.ArrowInvalid):
            return parse_instants(timestamps_of(column))
    return pa.nulls(len(column), INSTANT)


def _all(column: pa.Array) -> pa.Array:
    return column


def _in_format(column: pa.Array) -> pa.Array:
    return pc.if_else(pc.match_substring_regex(column, _TIME), column, None)


def _in_calendar(column: pa.Array) -> pa.Array:
    """The texts that Python can parse. The other functions are faster, but do not find a 30 February."""
    return pa.array([text if text is not None and _exists(text) else None for text in column.to_pylist()], pa.string())


def _exists(text: str) -> bool:
    try:
        timestamps.parse_timestamp(text)
    except ValueError:
        return False
    return True
