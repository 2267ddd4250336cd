"""Health: each application as it is, with its views, where they stand and how far behind the log.

What cannot be told, since Kafka or the store does not answer, is None, and it is said why; the rest is told all the
same: a partition without a leader takes the lag of those who read its topic, and of nobody else.
"""

from dataclasses import dataclass, field
from datetime import UTC, datetime

from truelog.apps import launcher, reader_positions
from truelog.apps.liveness import diagnose
from truelog.archive.archive_table import archived_positions
from truelog.control import application, view_status
from truelog.control.application import ARCHIVE, Diagnosis, Status
from truelog.control.view_status import ViewStatus
from truelog.lag.lag import Lag, lags, total
from truelog.log import topics
from truelog.log.positions import Offsets, Positions
from truelog.schema import event
from truelog.storage import db_snapshot
from truelog.storage.database import Connection
from truelog.support.errors import ServiceDown, TruelogError
from truelog.support.memory import megabytes
from truelog.support.settings import Settings
from truelog.views import catalogue

PositionsByReader = dict[str, Positions]  # by view; the archive under its own name


@dataclass(frozen=True)
class LagByReader:
    """How far each reader is behind; and of whom that cannot be told, why."""

    lags: dict[str, Lag]
    blind: dict[str, str]


@dataclass(frozen=True)
class ViewHealth:
    """One view of an application."""

    view: str
    state: str
    reason: str
    since: datetime | None
    positions: Offsets
    lag_events: int | None
    lag_seconds: float | None


@dataclass(frozen=True)
class ApplicationHealth:
    """One application; its positions are the least of its views', its lag is the greatest.

    `reason` is why that cannot be told of one of them.
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
    reason: str = ""
    views: list[ViewHealth] = field(default_factory=list)


def application_health(settings: Settings) -> list[ApplicationHealth]:
    """Of all applications; without a database, nothing is known of any.

    Raises:
        ServiceDown: PostgreSQL does not answer.
    """
    with db_snapshot.read_snapshot(settings) as connection:
        stood, statuses = _stands(settings, connection), _statuses(settings, connection)
        told = {each.view: each for each in view_status.view_statuses(connection)}
    behind = _lags(settings, stood)
    return [_health(settings, status, stood, behind, told) for status in statuses]


def unknown_health(name: str) -> ApplicationHealth:
    """Of an application that nobody can be asked about."""
    return ApplicationHealth(name, "UNKNOWN", application.RUNNING)


def application_state(settings: Settings, status: Status) -> str:
    """One word for it: RUNNING, STARTING, STOPPED; or what is wrong."""
    return named(status, diagnose(settings, status, datetime.now(UTC)))


def named(status: Status, found: Diagnosis | None) -> str:
    """The word, given what is wrong with it."""
    if found is not None:
        return found.upper()
    if not status.alive:
        return "STOPPED"
    return "RUNNING" if status.batch_at else "STARTING"


def _statuses(settings: Settings, connection: Connection) -> list[Status]:
    return [application.status(connection, name) for name in application.application_names(settings)]


def _stands(settings: Settings, connection: Connection) -> PositionsByReader:
    views = reader_positions.view_positions(connection, catalogue.view_names(settings.views_folder))
    stood = {view: stand.positions for view, stand in views.items()}
    try:
        return stood | {ARCHIVE: archived_positions(settings, event.event_names())}
    except TruelogError:
        return stood | {ARCHIVE: Positions()}


def _lags(settings: Settings, stood: PositionsByReader) -> LagByReader:
    counted = {name: reader_positions.without_ticks(at) for name, at in stood.items() if at.offsets}
    try:
        ends = topics.ends_by_partition(
            topics.client(settings), {topic for at in counted.values() for topic in at.offsets}
        )
        blind = {name: why for name, at in counted.items() if (why := ends.missing(at.offsets))}
        seen = {name: at for name, at in counted.items() if name not in blind}
        behind = lags(settings, seen, ends.positions)
    except ServiceDown as down:
        return LagByReader({}, dict.fromkeys(counted, str(down)))
    return LagByReader({name: total(parts) for name, parts in behind.items()}, blind)


def _health(
    settings: Settings, status: Status, stood: PositionsByReader, behind: LagByReader, told: dict[str, ViewStatus]
) -> ApplicationHealth:
    name = status.application
    mine = (
        [ARCHIVE]
        if name == ARCHIVE
        else [v for v in stood if v != ARCHIVE and application.application_of(settings, v) == name]
    )
    blind = next((behind.blind[each] for each in mine if each in behind.blind), "")
    known = [behind.lags[each] for each in mine if each in behind.lags and not blind]
    return ApplicationHealth(
        application=name,
        state=application_state(settings, status),
        desired=status.desired,
        epoch=status.epoch,
        pid=status.pid if status.alive else None,
        memory_mb=megabytes(launcher.application_processes(status)) if status.alive else None,
        batch_at=status.batch_at,
        positions=_least([stood[each] for each in mine]),
        lag_events=max((lag.events for lag in known), default=None),
        lag_seconds=max((round(lag.seconds, 3) for lag in known), default=None),
        reason=blind,
        views=[_view(view, stood[view], behind, told.get(view)) for view in mine if view != ARCHIVE],
    )


def _view(view: str, at: Positions, behind: LagByReader, told: ViewStatus | None) -> ViewHealth:
    lag, why_standing = behind.lags.get(view), told.reason if told else "no application has run it yet"
    return ViewHealth(
        view=view,
        state=told.state if told else "UNKNOWN",
        reason=why_standing or behind.blind.get(view, ""),
        since=told.since if told else None,
        positions=at.plain(),
        lag_events=lag.events if lag else None,
        lag_seconds=round(lag.seconds, 3) if lag else None,
    )


def _least(stood: list[Positions]) -> Offsets:
    """By partition, of those that read it: one that does not stands nowhere in it."""
    least: dict[str, dict[int, int]] = {}
    for at in stood:
        for topic, partition in at.partitions():
            by = least.setdefault(topic, {})
            by[partition] = min(by.get(partition, at.at(topic, partition)), at.at(topic, partition))
    return least
