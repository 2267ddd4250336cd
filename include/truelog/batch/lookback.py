"""Finds how far back a rebuild must read to know which events of a range are copies.

All events matter from the first whose broker time is within the horizon before the log time at which the range begins.
An event whose log time is within the horizon cannot be earlier. The log time itself would need all events before the
range, but the time of any of them serves: it is at most the log time, so more events are read than necessary.

The search begins at the end, as the search for ticks does (`truelog.kernel.clock`), and skips the files whose records
were appended too early. The driver gets one row for each topic.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from pyspark.sql import Column
from pyspark.sql import functions as F

from truelog.archive.reader import Wanted
from truelog.log import records
from truelog.log.positions import Range
from truelog.log.records import EventFrames

_LATEST = 2_000  # the number of records that are searched first; each further search reads 16 times as many
_FURTHER = 16
_MICROS = 1_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Read = Callable[[Wanted], EventFrames]


def find_lookback(read: Read, ids: Mapping[str, str], ranges: Iterable[Range], horizon: int) -> list[Range]:
    """The ranges before these ranges whose events may have copies in them. `horizon` is in seconds."""
    before = [replace(each, start=0, end=each.start) for each in ranges if each.start]
    first_times = {each: time - horizon * _MICROS for each, time in _late_times(read, ids, before).items()}
    if not first_times:
        return []
    since = _EPOCH + timedelta(microseconds=min(first_times.values()) - 1)
    firsts = {
        each: F.min(F.when(_is_in(each) & (F.unix_micros("broker_time") >= time), F.col("offset")))
        for each, time in first_times.items()
    }
    found = _aggregated(read(Wanted([*firsts], ids, since)), firsts)
    return [replace(each, start=first) for each, first in found.items()]


def _late_times(read: Read, ids: Mapping[str, str], before: list[Range]) -> dict[Range, int]:
    """The broker time of an event near the end of each of these ranges, if the range has an event."""
    found, rest, size = dict[Range, int](), {each: each.end for each in before}, _LATEST
    while rest:
        near = {each: replace(each, start=max(0, end - size), end=end) for each, end in rest.items()}
        latest = {each: F.max(F.when(_is_in(part), F.unix_micros("broker_time"))) for each, part in near.items()}
        found |= _aggregated(read(Wanted([*near.values()], ids)), latest)
        rest = {each: part.start for each, part in near.items() if each not in found and part.start}
        size *= _FURTHER
    return found


def _aggregated(events: EventFrames, columns: Mapping[Range, Column]) -> dict[Range, int]:
    """The value of each range's column, which aggregates the events of its topic. Ranges without events are absent."""
    found = dict[Range, int]()
    for topic, frame in events.items():
        chosen = [each for each in columns if each.topic == topic]
        if chosen:
            [row] = frame.agg(*(columns[each].alias(str(i)) for i, each in enumerate(chosen))).collect()
            found |= {each: value for each, value in zip(chosen, row, strict=True) if value is not None}
    return found


def _is_in(wanted: Range) -> Column:
    return records.in_ranges([wanted])
