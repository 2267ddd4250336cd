"""Lateness: how long after its event time an event reached the log, and which rows may still change because of that.

The broker's append time is archived with each record. Whether an event is late is therefore a function of the record
alone, and the stream and every rebuild agree on it.

A row may describe an interval of event time. It is open until the log's clock reaches the end of its window and the
grace period after it. Then the row is complete, unless it contains an event that reached the log after that: such a row
is corrected. Each record's contribution says whether the record is a correction, so the status is a function of the
view's positions.
"""

from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F

from truelog.support.durations import seconds

_MICROS = 1_000_000
CORRECTIONS = "corrections"  # the measure that counts the corrections of a row


def lateness() -> Column:
    """The microseconds from an event's time until its record reached the log. Negative if a clock was fast."""
    return F.unix_micros("broker_time") - F.unix_micros("event_time")


def is_late(allowed: str) -> Column:
    """Whether an event reached the log later after its event time than `allowed`, such as "1 hour"."""
    return lateness() > F.lit(seconds(allowed) * _MICROS)


@dataclass(frozen=True)
class EventWindow:
    """The windows of a view's rows. Readers see the status of each row in the column `status`.

    start: the key column with the start of a row's window.
    length: how long a window is ("1 minute").
    grace: how long after the end of a window its events may reach the log without being corrections.
    """

    start: str
    length: str
    grace: str

    def __post_init__(self) -> None:
        self.closes_after()

    def closes_after(self) -> int:
        """The seconds from the start of a window until its row is complete."""
        return seconds(self.length) + seconds(self.grace)

    def corrections(self, start: Column) -> Column:
        """The column that a transform selects for the measure `corrections`: 1 if the record is a correction, else 0.

        `start` is the start of the record's window.
        """
        closed_at = F.unix_micros(start) + F.lit(self.closes_after() * _MICROS)
        return (F.unix_micros("broker_time") > closed_at).cast("int").alias(CORRECTIONS)

    def status_sql(self, clock: str) -> str:
        """The SQL of the column `status`: open, complete or corrected. `clock` is the SQL of the log's clock."""
        closed = f'{clock} >= "{self.start}" + make_interval(secs => {self.closes_after()})'
        final = f"CASE WHEN {CORRECTIONS} > 0 THEN 'corrected' ELSE 'complete' END"
        return f"CASE WHEN {closed} THEN {final} ELSE 'open' END"
