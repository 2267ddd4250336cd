"""Lateness: how long after its event time an event reached the log.

The broker's append time is archived with each record. Whether an event is late is therefore a function of the record
alone, and the stream and every rebuild agree on it.
"""

from pyspark.sql import Column
from pyspark.sql import functions as F

from truelog.support.durations import seconds

_MICROS = 1_000_000


def lateness() -> Column:
    """The microseconds from an event's time until its record reached the log. Negative if a clock was fast."""
    return F.unix_micros("broker_time") - F.unix_micros("event_time")


def is_late(allowed: str) -> Column:
    """Whether an event reached the log later after its event time than `allowed`, such as "1 hour"."""
    return lateness() > F.lit(seconds(allowed) * _MICROS)
