"""The stream report: each application's desired state, actual state, and readers by partition.

The lag comes from the lag service's newest samples. Otherwise each page view would put load on the brokers and the
archive.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from truelog.apps import launch_history, reader_positions
from truelog.control import application, view_status
from truelog.control.application import ARCHIVE, ApplicationStatus
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

_BATCHES = 12  # number of recent batches in the report


@dataclass(frozen=True)
class ReaderReport:
    """A view or the archive. The lag is the sum over its partitions, and the freshness is the maximum.

    Both are None if any partition has no current sample, because a result from the other partitions would be too low.
    """

    reader: str
    version: int | None
    state: str
    reason: str
    since: datetime | None
    verdict: LagVerdict
    lag_events: int | None
    freshness: float | None
    lag_age: float | None  # age of the samples that the lag and the freshness come from
    lag_unknown: str  # why the lag is unknown, or empty if it is known
    partitions: Sequence[lag_report.LagRow]
    answer: ServingStatus | None  # None for the archive, which is not a view


@dataclass(frozen=True)
class LaunchReport:
    """The last start of an application, and the number of starts in the last 24 hours."""

    at: datetime
    reason: str
    wish: str | None
    within_a_day: int


@dataclass(frozen=True)
class ApplicationReport:
    status: ApplicationStatus
    state: str
    launch: LaunchReport | None
    batches: Sequence[BatchSteps]
    readers: Sequence[ReaderReport]


def application_reports(settings: Settings) -> list[ApplicationReport]:
    """The reports on all applications at the same moment.

    Raises:
        ServiceDown: PostgreSQL does not answer.
    """
    with db_snapshot.read_snapshot(settings) as connection:
        statuses = [application.load_status(connection, name) for name in application.application_names(settings)]
        reports, launches = (
            _launches(connection),
            launch_history.launches(connection, [s.application for s in statuses]),
        )
        batches = {
            each.application: batch_metrics.latest_steps(connection, each.application, _BATCHES) for each in statuses
        }
        readers = _readers(settings, connection)
    return [
        ApplicationReport(
            status,
            health.application_state(settings, status, launches[status.application]),
            reports.get(status.application),
            batches[status.application],
            [each for each in readers if lag_report.application_of_reader(settings, each.reader) == status.application],
        )
        for status in statuses
    ]


def _readers(settings: Settings, connection: Connection) -> list[ReaderReport]:
    rows = lag_report.by_reader(lag_report.rows(settings, connection))
    positions = reader_positions.view_positions(connection, [reader for reader in rows if reader != ARCHIVE])
    states = {each.view: each for each in view_status.view_statuses(connection)}
    answers = serving_status.serving_statuses(connection)
    unknown = ("UNKNOWN", "no application has run it yet", None)
    return [
        ReaderReport(
            reader,
            positions[reader].version if reader in positions else None,
            *(("", "", None) if reader == ARCHIVE else _state(states[reader]) if reader in states else unknown),
            lag_report.worst(partitions).verdict,
            lag.events,
            lag.seconds,
            lag.age,
            lag.unknown,
            partitions,
            answers.get(reader),
        )
        for reader, partitions in rows.items()
        for lag in [lag_report.reader_lag(partitions)]
    ]


def _state(status: ViewStatus) -> tuple[str, str, datetime | None]:
    return status.state, status.reason, status.since


def _launches(connection: Connection) -> dict[str, LaunchReport]:
    rows: list[tuple[Any, ...]] = connection.execute(
        "SELECT DISTINCT ON (application) application, launched_at, reason, wish, "
        "count(*) FILTER (WHERE launched_at > now() - interval '1 day') OVER (PARTITION BY application) "
        "FROM truelog.launch ORDER BY application, id DESC"
    ).fetchall()
    return {name: LaunchReport(*launch) for name, *launch in rows}
