"""Application health: each application's state and views, and the positions and lag of the views.

The lag comes from the lag service's newest samples, as in `truelog lag` and on the pages.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from truelog.apps import launch_history, launcher, reader_positions
from truelog.apps.launch_history import Launches
from truelog.apps.liveness import diagnose
from truelog.apps.reader_positions import ReaderPosition
from truelog.archive.table import archive_position
from truelog.control import application, view_status, view_tables
from truelog.control.application import ARCHIVE, ApplicationStatus, Diagnosis
from truelog.control.view_status import ViewStatus
from truelog.lag import report as lag_report
from truelog.lag.report import ReaderLag
from truelog.log.positions import Offsets, Positions
from truelog.storage import db_snapshot
from truelog.storage.database import Connection
from truelog.support.errors import TruelogError
from truelog.support.memory import megabytes
from truelog.support.settings import Settings


@dataclass(frozen=True)
class ViewHealth:
    """The health of one view. `lag_age` is the age of the sample that the lag comes from."""

    view: str
    state: str
    reason: str
    since: datetime | None
    positions: Offsets
    lag_events: int | None
    lag_seconds: float | None
    lag_age: float | None = None


@dataclass(frozen=True)
class ApplicationHealth:
    """The health of one application: its views' lowest positions, their greatest lag, and their oldest sample's age.

    If any reader's lag is unknown, the application's lag is None and `reason` contains the reason.
    """

    application: str
    state: str
    desired: str
    epoch: int | None = None
    pid: int | None = None
    memory_mb: float | None = None
    batch_at: datetime | None = None
    positions: Offsets = field(default_factory=dict)
    lag_events: int | None = None
    lag_seconds: float | None = None
    lag_age: float | None = None
    reason: str = ""
    views: list[ViewHealth] = field(default_factory=list)


@dataclass(frozen=True)
class _Facts:
    """The facts from one database snapshot, by view or reader."""

    positions: Mapping[str, ReaderPosition]
    states: Mapping[str, ViewStatus]
    lags: Mapping[str, ReaderLag]
    launches: Mapping[str, Launches]


def application_health(settings: Settings) -> list[ApplicationHealth]:
    """The health of every application.

    Raises:
        ServiceDown: PostgreSQL does not answer.
    """
    with db_snapshot.read_snapshot(settings) as connection:
        statuses = [application.load_status(connection, name) for name in application.application_names(settings)]
        facts = _facts(settings, connection, [each.application for each in statuses])
    archived = _archived(settings)
    return [
        _archive_health(settings, status, archived, facts)
        if status.application == ARCHIVE
        else _stream_health(settings, status, facts)
        for status in statuses
    ]


def unknown_health(name: str) -> ApplicationHealth:
    """The health of an application if the database does not answer."""
    return ApplicationHealth(name, "UNKNOWN", application.RUNNING)


def application_state(settings: Settings, status: ApplicationStatus, launch: Launches) -> str:
    """RUNNING, STARTING, STOPPED, RESTING, or the name of the problem."""
    return state_name(settings, status, diagnose(settings, status, datetime.now(UTC)), launch)


def recorded_state(settings: Settings, status: ApplicationStatus, launch: Launches) -> str:
    """The state of an application from the database alone, because a query to Kafka could delay a page."""
    allowed = application.silence_limits(settings, status.application)
    return state_name(settings, status, application.diagnose_status(status, allowed, datetime.now(UTC)), launch)


def state_name(settings: Settings, status: ApplicationStatus, found: Diagnosis | None, launch: Launches) -> str:
    """The state of an application for a given diagnosis."""
    now = datetime.now(UTC)
    if found is Diagnosis.DOWN and launch_history.is_starting(status, launch, now):
        return "STARTING"
    if launch_history.resting_until(settings, status, found, launch, now):
        return "RESTING"
    if found is not None:
        return found.upper()
    if not status.alive or status.held_by_command:
        return "STOPPED"
    return "RUNNING" if status.batch_at else "STARTING"


def _facts(settings: Settings, connection: Connection, names: Sequence[str]) -> _Facts:
    rows = lag_report.by_reader(lag_report.rows(settings, connection))
    return _Facts(
        reader_positions.view_positions(connection, view_tables.streamed_views(settings, connection)),
        {each.view: each for each in view_status.view_statuses(connection)},
        {reader: lag_report.reader_lag(partitions) for reader, partitions in rows.items()},
        launch_history.launches(connection, names),
    )


def _archived(settings: Settings) -> Positions:
    try:
        return archive_position(settings)
    except TruelogError:  # the store does not answer, but everything else can still be reported
        return Positions()


def _archive_health(
    settings: Settings, status: ApplicationStatus, archived: Positions, facts: _Facts
) -> ApplicationHealth:
    state = application_state(settings, status, facts.launches[ARCHIVE])
    return _health(status, state, [archived], [facts.lags[ARCHIVE]], [])


def _stream_health(settings: Settings, status: ApplicationStatus, facts: _Facts) -> ApplicationHealth:
    views = [view for view in facts.positions if application.application_of_view(settings, view) == status.application]
    made = [view for view in views if facts.positions[view].version]
    return _health(
        status,
        application_state(settings, status, facts.launches[status.application]),
        [facts.positions[view].positions for view in views],
        [facts.lags[view] for view in made],
        [_view_health(view, facts) for view in views],
    )


def _health(
    status: ApplicationStatus,
    state: str,
    positions: Sequence[Positions],
    lags: Sequence[ReaderLag],
    views: list[ViewHealth],
) -> ApplicationHealth:
    unknown = next((lag.unknown for lag in lags if lag.unknown), "")
    known = [] if unknown else lags
    return ApplicationHealth(
        application=status.application,
        state=state,
        desired=status.desired,
        epoch=status.epoch,
        pid=status.pid if status.alive else None,
        memory_mb=megabytes(launcher.application_processes(status)) if status.alive else None,
        batch_at=status.batch_at,
        positions=_lowest(positions),
        lag_events=max((lag.events for lag in known if lag.events is not None), default=None),
        lag_seconds=max((lag.seconds for lag in known if lag.seconds is not None), default=None),
        lag_age=max((lag.age for lag in lags if lag.age is not None), default=None),
        reason=unknown,
        views=views,
    )


def _view_health(view: str, facts: _Facts) -> ViewHealth:
    """The health of one view. If the view has no table, its lag is empty and not reported as unknown."""
    position, status = facts.positions[view], facts.states.get(view)
    lag = facts.lags[view] if position.version else ReaderLag()
    state, reason = (status.state, status.reason) if status else view_status.unreported(position.version or None)
    return ViewHealth(
        view=view,
        state=state,
        reason=reason or (f"lag unknown: {lag.unknown}" if lag.unknown else ""),
        since=status.since if status else None,
        positions=position.positions.plain(),
        lag_events=lag.events,
        lag_seconds=lag.seconds,
        lag_age=lag.age,
    )


def _lowest(positions: Sequence[Positions]) -> Offsets:
    """The lowest position in each partition among the readers of that partition."""
    lowest: dict[str, dict[int, int]] = {}
    for at in positions:
        for topic, partition in at.partitions():
            offsets = lowest.setdefault(topic, {})
            offsets[partition] = min(offsets.get(partition, at.at(topic, partition)), at.at(topic, partition))
    return lowest
