"""Instants: columns of timestamps in the format of `truelog.support.timestamps`, parsed together."""

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
