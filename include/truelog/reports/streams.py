"""The stream report: each application's desired state, actual state, and readers.

The lag comes from the lag service's newest samples. Otherwise each page view would put load on the brokers and the
archive.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from truelog.apps import launch_history, launcher
from truelog.apps.launch_history import Launches
from truelog.apps.liveness import diagnose
from truelog.control import application, view_status, view_tables
from truelog.control.application import ARCHIVE, ApplicationStatus
from truelog.control.view_status import ViewStatus
from truelog.lag import limits as lag_limits
from truelog.lag import report as lag_report
from truelog.lag.verdict import LagVerdict
from truelog.reports import health
from truelog.serving import status as serving_status
from truelog.serving.status import ServingStatus
from truelog.storage import db_snapshot
from truelog.storage.database import Connection
from truelog.streaming import batch_metrics
from truelog.streaming.batch_metrics import BatchSteps
from truelog.support.settings import Settings

_IN_TROUBLE = ("DOWN", "RESTING", "HUNG")
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
    verdict: LagVerdict  # the worst of all partitions
    why: str  # the reason of this verdict
    lag_events: int | None
    freshness: float | None
    lag_age: float | None  # age of the samples that the lag and the freshness come from
    lag_unknown: str  # why the lag is unknown, or empty if it is known
    partitions: int  # that have a sample
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
    """`next_try` is set if the application RESTS, and `last_error` comes from the log of an application in trouble."""

    status: ApplicationStatus
    state: str
    next_try: datetime | None
    last_error: str
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
            *_state_of(settings, status, launches[status.application]),
            reports.get(status.application),
            batches[status.application],
            [each for each in readers if lag_limits.application_of_reader(settings, each.reader) == status.application],
        )
        for status in statuses
    ]


def _state_of(settings: Settings, status: ApplicationStatus, launch: Launches) -> tuple[str, datetime | None, str]:
    """The state, the time of the next try, and the last error."""
    now = datetime.now(UTC)
    found = diagnose(settings, status, now)
    state = health.state_name(settings, status, found, launch)
    error = launcher.last_error(settings, status.application) if state in _IN_TROUBLE else ""
    return state, launch_history.resting_until(settings, status, found, launch, now), error


def _readers(settings: Settings, connection: Connection) -> list[ReaderReport]:
    rows = lag_report.by_reader(lag_report.rows(settings, connection))
    versions = view_tables.deployed_versions(connection)
    states = {each.view: each for each in view_status.view_statuses(connection)}
    answers = serving_status.serving_statuses(connection)
    return [
        ReaderReport(
            reader,
            versions.get(reader),
            *(("", "", None) if reader == ARCHIVE else _state(states.get(reader), versions.get(reader))),
            worst.verdict,
            worst.reason,
            lag.events,
            lag.seconds,
            lag.age,
            lag.unknown,
            sum(each.topic is not None for each in partitions),
            answers.get(reader),
        )
        for reader, partitions in rows.items()
        for lag, worst in [(lag_report.reader_lag(partitions), lag_report.worst(partitions))]
    ]


def _state(status: ViewStatus | None, version: int | None) -> tuple[str, str, datetime | None]:
    return (status.state, status.reason, status.since) if status else (*view_status.unreported(version), None)


def _launches(connection: Connection) -> dict[str, LaunchReport]:
    rows = connection.execute(
        "SELECT DISTINCT ON (application) application, launched_at, reason, wish, "
        "count(*) FILTER (WHERE launched_at > now() - interval '1 day') OVER (PARTITION BY application) "
        "FROM truelog.launch ORDER BY application, id DESC"
    ).fetchall()
    return {name: LaunchReport(*launch) for name, *launch in rows}
