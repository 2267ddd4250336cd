"""The report of lag: of every reader and partition its newest sample and the verdict on its history."""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from truelog.control import application
from truelog.control.application import ARCHIVE
from truelog.lag import lag_history
from truelog.lag.lag_history import Reading
from truelog.lag.lag_verdict import BLIND_SECONDS, LagAssessment, LagVerdict, Limits, Sample, assess
from truelog.storage import db_snapshot
from truelog.storage.database import Connection
from truelog.support.settings import Settings
from truelog.views import catalogue

_FINE_SECONDS = 10.0  # beyond the trigger; what a batch may take
POLLS = 3  # after which a poller that says nothing is blind


@dataclass(frozen=True)
class LagRow:
    """Of one reader in one partition, without numbers where the poller is blind. Rates are records a second."""

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
    """The lag of a reader over all its partitions, by the newest sample of each.

    Where one partition has no current sample, the numbers are None, and `unknown` says why. `age` is the age in
    seconds of the oldest of these samples.
    """

    events: int | None = None
    seconds: float | None = None
    age: float | None = None
    unknown: str = ""


def lag_rows_now(settings: Settings, names: Iterable[str] = ()) -> list[LagRow]:
    """Of these readers; by default of the archive and all views.

    Raises:
        ServiceDown: PostgreSQL does not answer.
    """
    with db_snapshot.read_snapshot(settings) as connection:
        return rows(settings, connection, names)


def rows(settings: Settings, connection: Connection, names: Iterable[str] = ()) -> list[LagRow]:
    """The same within a snapshot that the caller has."""
    now = time.time()
    wanted = list(names) or [ARCHIVE, *catalogue.view_names(settings.views_folder)]
    known = lag_history.since(connection, now - max(limits(settings, reader).window for reader in wanted))
    return [row for reader in wanted for row in _of(settings, reader, known.get(reader, []), now)]


def by_reader(found: Iterable[LagRow]) -> dict[str, list[LagRow]]:
    """The same for each reader, in the order in which they come."""
    of_reader: dict[str, list[LagRow]] = {}
    for row in found:
        of_reader.setdefault(row.reader, []).append(row)
    return of_reader


def worst(of_reader: Iterable[LagRow]) -> LagRow:
    """The partition that speaks for its reader; the first of several."""
    return max(of_reader, key=lambda row: list(LagVerdict).index(row.verdict))


def lag_events(of_reader: Sequence[LagRow]) -> int | None:
    """Of all its partitions; None where one is not seen."""
    known = [row.lag_events for row in of_reader if row.lag_events is not None]
    return sum(known) if len(known) == len(of_reader) else None


def freshness(of_reader: Sequence[LagRow]) -> float | None:
    """Age in seconds of the oldest record that the reader has still to count; 0 where it has counted all.

    None where one of its partitions is not seen.
    """
    known = [row.lag_seconds for row in of_reader if row.lag_seconds is not None]
    return max(known, default=None) if len(known) == len(of_reader) else None


def reader_lag(of_reader: Sequence[LagRow]) -> ReaderLag:
    """The lag of the reader that these rows are about."""
    unknown = next((row.reason for row in of_reader if row.rule == BLIND_SECONDS), "")
    ages = [row.sample_age for row in of_reader if row.sample_age is not None]
    return ReaderLag(lag_events(of_reader), freshness(of_reader), max(ages, default=None), unknown)


def application_of(settings: Settings, reader: str) -> str:
    """The application that the reader is part of."""
    return ARCHIVE if reader == ARCHIVE else application.application_of(settings, reader)


def limits(settings: Settings, reader: str) -> Limits:
    """What is too much for this reader: the archive is behind by its trigger, and nothing is wrong."""
    runs = application_of(settings, reader)
    trigger = settings.archive_trigger_seconds if runs == ARCHIVE else settings.stream_trigger_seconds
    return Limits(
        blind=POLLS * settings.lag_poll_seconds,
        fine=trigger + _FINE_SECONDS,
        late=trigger + settings.lag_late_seconds,
        still=application.silence_limits(settings, runs).silence.total_seconds(),
        falling=settings.lag_falling_seconds,
        backed=runs != ARCHIVE,
    )


def _of(settings: Settings, reader: str, readings: list[Reading], now: float) -> list[LagRow]:
    runs, allowed = application_of(settings, reader), limits(settings, reader)
    histories = lag_history.by_partition(readings)
    if not histories:
        found = assess([], now, allowed)
        return [LagRow(reader, runs, found.verdict, found.rule, found.reason)]
    return [
        _row(LagRow(reader, runs, found.verdict, found.rule, found.reason, *place), found, history[-1], now)
        for place, history in sorted(histories.items())
        for found in [assess(history, now, allowed)]
    ]


def _row(row: LagRow, found: LagAssessment, last: Sample, now: float) -> LagRow:
    row = replace(row, sampled_at=last.at, sample_age=round(max(0.0, now - last.at), 3))
    if found.rule == BLIND_SECONDS:  # numbers of another time
        return row
    return replace(
        row,
        position=last.position,
        end=last.end,
        earliest=last.earliest,
        lag_events=last.events,
        lag_seconds=last.seconds,
        rate_in=found.came,
        rate_counted=found.counted,
        caught_up_in=found.caught_up_in,
    )
