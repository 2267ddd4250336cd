"""The lag of every reader by partition: the newest sample, and the verdict that the lag service stored with it."""

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from truelog.control import view_tables
from truelog.control.application import ARCHIVE
from truelog.lag import history
from truelog.lag.history import ReaderPoll
from truelog.lag.limits import application_of_reader, limits
from truelog.lag.unread import Partition
from truelog.lag.verdict import UNKNOWN_RULE, LagAssessment, LagVerdict, Limits, Sample, blindness
from truelog.storage import db_snapshot
from truelog.storage.database import Connection
from truelog.support.settings import Settings

_SEVERITY = {verdict: severity for severity, verdict in enumerate(LagVerdict)}


@dataclass(frozen=True, slots=True)
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
    known = history.newest(connection, now - max(limits(settings, reader).window for reader in wanted))
    return [row for reader in wanted for row in _reader_rows(settings, reader, known.get(reader), now)]


def by_reader(found: Iterable[LagRow]) -> dict[str, list[LagRow]]:
    """The rows grouped by reader, in their original order."""
    of_reader: dict[str, list[LagRow]] = {}
    for row in found:
        of_reader.setdefault(row.reader, []).append(row)
    return of_reader


def worst(rows: Iterable[LagRow]) -> LagRow:
    """The row with the worst verdict, or the first such row if there are several."""
    return max(rows, key=lambda row: _SEVERITY[row.verdict])


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


def least_fresh(of_reader: Mapping[str, Sequence[LagRow]]) -> str:
    """The reader whose freshness is the worst: unknown, or else the highest. A reader without samples comes last."""

    def rank(reader: str) -> float:
        if all(row.topic is None for row in of_reader[reader]):
            return -1.0
        known = freshness(of_reader[reader])
        return math.inf if known is None else known

    return max(of_reader, key=rank)


def total(rates: Iterable[float | None]) -> float | None:
    """The sum of the rates of all partitions, or None if any of them is unknown."""
    found = list(rates)
    known = [each for each in found if each is not None]
    return sum(known) if len(known) == len(found) > 0 else None


def reader_lag(rows: Sequence[LagRow]) -> ReaderLag:
    """One reader's lag, calculated from its rows."""
    unknown = next((row.reason for row in rows if row.rule == UNKNOWN_RULE), "")
    ages = [row.sample_age for row in rows if row.sample_age is not None]
    return ReaderLag(lag_events(rows), freshness(rows), max(ages, default=None), unknown)


def _reader_rows(settings: Settings, reader: str, newest: ReaderPoll | None, now: float) -> list[LagRow]:
    runner, allowed = application_of_reader(settings, reader), limits(settings, reader)
    if newest is None or not newest.samples:
        return [LagRow(reader, runner, LagVerdict.UNKNOWN, UNKNOWN_RULE, blindness(None, now, allowed))]
    found, age = newest.assessments, round(max(0.0, now - newest.at), 3)
    return [
        _row((reader, runner), partition, sample, _judged(sample, found.get(partition), allowed, now), age)
        for partition, sample in sorted(newest.samples.items())
    ]


def _judged(sample: Sample, found: LagAssessment | None, allowed: Limits, now: float) -> LagAssessment:
    """The stored verdict, or UNKNOWN if it is missing or out of date."""
    blind = blindness(sample, now, allowed)
    if blind or found is None:
        reason = blind or "the lag service has not judged its last sample"
        return LagAssessment(LagVerdict.UNKNOWN, UNKNOWN_RULE, reason)
    return found


def _row(reader: tuple[str, str], partition: Partition, sample: Sample, found: LagAssessment, age: float) -> LagRow:
    known = found.rule != UNKNOWN_RULE  # otherwise the numbers would be out of date
    return LagRow(
        *reader,
        found.verdict,
        found.rule,
        found.reason,
        *partition,
        position=sample.position if known else None,
        end=sample.end if known else None,
        earliest=sample.earliest if known else None,
        lag_events=sample.events if known else None,
        lag_seconds=sample.seconds if known else None,
        rate_in=found.rate_in,
        rate_counted=found.rate_counted,
        caught_up_in=found.caught_up_in,
        sampled_at=sample.at,
        sample_age=age,
    )
