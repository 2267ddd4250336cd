"""The report on streams: each application as it should be and as it is, with its readers, partition by partition.

Lag is what the poller saw last: asking brokers and archive anew for everybody who looks would load both.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from truelog.apps import reader_positions
from truelog.control import application, view_status
from truelog.control.application import ARCHIVE, Status
from truelog.control.view_status import ViewStatus
from truelog.lag import lag_report
from truelog.lag.lag_verdict import LagVerdict
from truelog.monitor import health
from truelog.serving import serving_status
from truelog.serving.serving_status import ServingStatus
from truelog.storage import db_snapshot
from truelog.storage.database import Connection
from truelog.streaming import batch_metrics
from truelog.streaming.batch_metrics import BatchSteps
from truelog.support.settings import Settings

_BATCHES = 12  # that are told


@dataclass(frozen=True)
class ReaderReport:
    """A view, or the archive; its lag is the sum over partitions, its freshness the worst of them.

    Both are None where one partition is not seen: a sum over the others would look too good.
    """

    reader: str
    version: int | None
    state: str
    reason: str
    since: datetime | None
    verdict: LagVerdict
    lag_events: int | None
    freshness: float | None
    lag_age: float | None  # of the samples that lag and freshness come from
    lag_unknown: str  # why there is no lag; empty where it is known
    partitions: Sequence[lag_report.LagRow]
    answer: ServingStatus | None  # which layer gives it to readers; the archive is no view


@dataclass(frozen=True)
class LaunchReport:
    """The last start of an application, and how many there were in a day."""

    at: datetime
    reason: str
    wish: str | None
    within_a_day: int


@dataclass(frozen=True)
class ApplicationReport:
    status: Status
    state: str
    launch: LaunchReport | None
    batches: Sequence[BatchSteps]
    readers: Sequence[ReaderReport]


def application_reports(settings: Settings) -> list[ApplicationReport]:
    """Of all applications, as of one moment.

    Raises:
        ServiceDown: PostgreSQL does not answer.
    """
    with db_snapshot.read_snapshot(settings) as connection:
        statuses = [application.status(connection, name) for name in application.application_names(settings)]
        launches = _launches(connection)
        batches = {
            each.application: batch_metrics.latest_steps(connection, each.application, _BATCHES) for each in statuses
        }
        read = _readers(settings, connection)
    return [
        ApplicationReport(
            status,
            health.application_state(settings, status),
            launches.get(status.application),
            batches[status.application],
            [each for each in read if lag_report.application_of(settings, each.reader) == status.application],
        )
        for status in statuses
    ]


def _readers(settings: Settings, connection: Connection) -> list[ReaderReport]:
    rows = lag_report.by_reader(lag_report.rows(settings, connection))
    stood = reader_positions.view_positions(connection, [reader for reader in rows if reader != ARCHIVE])
    told = {each.view: each for each in view_status.view_statuses(connection)}
    answers = serving_status.serving_statuses(connection)
    unknown = ("UNKNOWN", "no application has run it yet", None)
    return [
        ReaderReport(
            reader,
            stood[reader].version if reader in stood else None,
            *(("", "", None) if reader == ARCHIVE else _said(told[reader]) if reader in told else unknown),
            lag_report.worst(seen).verdict,
            lag.events,
            lag.seconds,
            lag.age,
            lag.unknown,
            seen,
            answers.get(reader),
        )
        for reader, seen in rows.items()
        for lag in [lag_report.reader_lag(seen)]
    ]


def _said(told: ViewStatus) -> tuple[str, str, datetime | None]:
    return told.state, told.reason, told.since


def _launches(connection: Connection) -> dict[str, LaunchReport]:
    rows: list[tuple[Any, ...]] = connection.execute(
        "SELECT DISTINCT ON (application) application, launched_at, reason, wish, "
        "count(*) FILTER (WHERE launched_at > now() - interval '1 day') OVER (PARTITION BY application) "
        "FROM truelog.launch ORDER BY application, id DESC"
    ).fetchall()
    return {name: LaunchReport(*launch) for name, *launch in rows}
