"""The lag of every reader by partition: the newest sample, and the verdict on the history."""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from truelog.control import application, view_tables
from truelog.control.application import ARCHIVE
from truelog.lag import lag_history
from truelog.lag.lag_history import ReaderPoll
from truelog.lag.lag_verdict import UNKNOWN_RULE, LagAssessment, LagVerdict, Limits, Sample, assess
from truelog.storage import db_snapshot
from truelog.storage.database import Connection
from truelog.support.settings import Settings

_FINE_SECONDS = 10.0  # the usual duration of a batch, added to the trigger interval
POLLS = 3  # a sample older than this many poll intervals is not current


@dataclass(frozen=True)
class LagRow:
    """A reader's lag in one partition. If there is no current sample, all numbers are None. Rates are per second."""

    reader: str
    application: str
    verdict: LagVerdict
    rule: int
    reason: str
    topic: str | None = None
    partition: int | None = None
    position: int | None = None
    end: int | None = None
    earliest: int | None = None
    lag_events: int | None = None
    lag_seconds: float | None = None
    rate_in: float | None = None
    rate_counted: float | None = None
    caught_up_in: float | None = None
    sampled_at: float | None = None
    sample_age: float | None = None


@dataclass(frozen=True)
class ReaderLag:
    """A reader's lag over all its partitions, from the newest sample of each partition.

    If any partition has no current sample, the numbers are None and `unknown` contains the reason. `age` is the age of
    the oldest of these samples in seconds.
    """

    events: int | None = None
    seconds: float | None = None
    age: float | None = None
    unknown: str = ""


def lag_rows_now(settings: Settings, names: Iterable[str] = ()) -> list[LagRow]:
    """The rows for these readers, or by default for the archive and all views that a stream runs.

    Raises:
        ServiceDown: PostgreSQL does not answer.
    """
    with db_snapshot.read_snapshot(settings) as connection:
        return rows(settings, connection, names)


def rows(settings: Settings, connection: Connection, names: Iterable[str] = ()) -> list[LagRow]:
    """The rows for these readers, read in the caller's snapshot."""
    now = time.time()
    wanted = list(names) or [ARCHIVE, *view_tables.streamed_views(settings, connection)]
    known = lag_history.since(connection, now - max(limits(settings, reader).window for reader in wanted))
    return [row for reader in wanted for row in _reader_rows(settings, reader, known.get(reader, []), now)]


def by_reader(found: Iterable[LagRow]) -> dict[str, list[LagRow]]:
    """The rows grouped by reader, in their original order."""
    of_reader: dict[str, list[LagRow]] = {}
    for row in found:
        of_reader.setdefault(row.reader, []).append(row)
    return of_reader


def worst(rows: Iterable[LagRow]) -> LagRow:
    """The row with the worst verdict, or the first such row if there are several."""
    return max(rows, key=lambda row: list(LagVerdict).index(row.verdict))


def lag_events(rows: Sequence[LagRow]) -> int | None:
    """The number of unread records in all partitions, or None if any partition has no current sample."""
    known = [row.lag_events for row in rows if row.lag_events is not None]
    return sum(known) if len(known) == len(rows) else None


def freshness(rows: Sequence[LagRow]) -> float | None:
    """The age in seconds of the oldest record that the reader has not processed, or 0 if it has processed all records.

    The age is None if any partition has no current sample.
    """
    known = [row.lag_seconds for row in rows if row.lag_seconds is not None]
    return max(known, default=None) if len(known) == len(rows) else None


def reader_lag(rows: Sequence[LagRow]) -> ReaderLag:
    """One reader's lag, calculated from its rows."""
    unknown = next((row.reason for row in rows if row.rule == UNKNOWN_RULE), "")
    ages = [row.sample_age for row in rows if row.sample_age is not None]
    return ReaderLag(lag_events(rows), freshness(rows), max(ages, default=None), unknown)


def application_of_reader(settings: Settings, reader: str) -> str:
    """The application that runs the reader."""
    return ARCHIVE if reader == ARCHIVE else application.application_of_view(settings, reader)


def limits(settings: Settings, reader: str) -> Limits:
    """The limits for this reader. They include the trigger interval, because the reader falls behind by that much."""
    runner = application_of_reader(settings, reader)
    trigger = settings.archive_trigger_seconds if runner == ARCHIVE else settings.stream_trigger_seconds
    return Limits(
        blind=POLLS * settings.lag_poll_seconds,
        fine=trigger + _FINE_SECONDS,
        late=trigger + settings.lag_late_seconds,
        still=application.silence_limits(settings, runner).silence.total_seconds(),
        falling=settings.lag_falling_seconds,
        backed=runner != ARCHIVE,
    )


def _reader_rows(settings: Settings, reader: str, readings: list[ReaderPoll], now: float) -> list[LagRow]:
    runner, allowed = application_of_reader(settings, reader), limits(settings, reader)
    histories = lag_history.by_partition(readings)
    if not histories:
        found = assess([], now, allowed)
        return [LagRow(reader, runner, found.verdict, found.rule, found.reason)]
    return [
        _row(LagRow(reader, runner, found.verdict, found.rule, found.reason, *partition), found, history[-1], now)
        for partition, history in sorted(histories.items())
        for found in [assess(history, now, allowed)]
    ]


def _row(row: LagRow, found: LagAssessment, last: Sample, now: float) -> LagRow:
    row = replace(row, sampled_at=last.at, sample_age=round(max(0.0, now - last.at), 3))
    if found.rule == UNKNOWN_RULE:  # the numbers would be out of date
        return row
    return replace(
        row,
        position=last.position,
        end=last.end,
        earliest=last.earliest,
        lag_events=last.events,
        lag_seconds=last.seconds,
        rate_in=found.rate_in,
        rate_counted=found.rate_counted,
        caught_up_in=found.caught_up_in,
    )
