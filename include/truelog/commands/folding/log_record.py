"""A record of a topic, as a fold reads it."""

from datetime import datetime
from typing import NamedTuple


class LogRecord(NamedTuple):
    """A record of a topic, whose name the context says."""

    partition: int
    offset: int
    broker_time: datetime
    value: bytes | None
