"""The steps of a chart over time. Steps have numbers: step `n` begins `n` step lengths after 1970."""

from dataclasses import dataclass
from datetime import datetime

from truelog.storage.database import Connection, read_value


@dataclass(frozen=True)
class TimeRange:
    """The `seconds` before a time; without `until`, before now by the database's clock."""

    seconds: float
    until: datetime | None = None


def step_numbers(connection: Connection, span: TimeRange, step: float) -> range:
    """The numbers of the steps of a time range. A step lasts `step` seconds."""
    query = "SELECT extract(epoch FROM coalesce(%s, now()))::float8"
    last = int(read_value(connection, query, (span.until,)) // step)
    return range(last - int(span.seconds // step), last + 1)
