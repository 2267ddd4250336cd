"""Finds applications that are down or hung, have no input, or keep dying.

An application that is starting because of a release, a request or a start of the whole platform is not down, but it is
not healthy yet either.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from truelog.alerts.alert_rules import Finding, Observation
from truelog.apps.liveness import diagnose
from truelog.control import application
from truelog.control.application import ApplicationStatus, Diagnosis
from truelog.storage import db_snapshot
from truelog.storage.database import Connection
from truelog.support.durations import in_words
from truelog.support.settings import Settings

APPLICATION_KINDS = ("application_down", "no_input", "application_restarting")
_START_LIMIT = timedelta(minutes=3)  # from the start of the application or the platform to the first lease
_DEATHS_WINDOW = timedelta(minutes=10)

_LAUNCHES = """
    SELECT application, newest.reason, newest.launched_at, (
        SELECT count(*) FROM truelog.launch l WHERE l.application = a.application AND l.launched_at > now() - %s
            AND reason = ANY(%s)
    ), EXISTS (
        SELECT FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1 AND granted
            AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
            AND (classid::bigint << 32) | objid::bigint = hashtextextended('launch ' || a.application, 0)
    ), pg_postmaster_start_time()
    FROM unnest(%s::text[]) AS a (application) LEFT JOIN LATERAL (
        SELECT reason, launched_at FROM truelog.launch l WHERE l.application = a.application ORDER BY id DESC LIMIT 1
    ) newest ON true
"""


@dataclass(frozen=True)
class Launches:
    """An application's last launch and recent deaths, and whether the launcher is working on the application now."""

    application: str
    reason: str | None
    launched_at: datetime | None
    deaths: int
    launching: bool
    platform_started_at: datetime  # start of PostgreSQL


def observe(settings: Settings) -> Observation:
    """Check every application."""
    with db_snapshot.read_snapshot(settings) as connection:
        statuses = {name: application.load_status(connection, name) for name in application.application_names(settings)}
        launches = _launches(connection, list(statuses))
    now = datetime.now(UTC)
    diagnoses = {name: diagnose(settings, status, now) for name, status in statuses.items()}
    findings, unseen = list[Finding](), set[str]()
    for name, status in statuses.items():
        down = Finding("application_down", name, _why_down(status, diagnoses[name], now))
        if diagnoses[name] in (Diagnosis.DOWN, Diagnosis.HUNG) and not is_starting(status, launches[name], now):
            findings.append(down)
        elif not _is_healthy(status, diagnoses[name]):
            unseen.add(down.key)
        if (deaths := launches[name].deaths) >= settings.alert_deaths:
            window = in_words(_DEATHS_WINDOW.total_seconds())
            findings.append(Finding("application_restarting", name, f"died or hung {deaths} times within {window}"))
    if silent := [name for name in statuses if diagnoses[name] is Diagnosis.NO_INPUT]:
        findings.append(Finding("no_input", "log", f"no input for {', '.join(silent)}"))
    return Observation(tuple(findings), frozenset(unseen))


def is_starting(status: ApplicationStatus, launch: Launches, now: datetime) -> bool:
    """Whether an application that is not alive is being started, and therefore does not count as down.

    1. The application was launched a moment ago: on request, by a release, or for the first time.
    2. The launcher is working on the application and has not recorded a launch yet.
    3. The platform started a moment ago and the application has not run since, or the application has never run.
    """
    if status.alive:
        return False
    launched = launch.launched_at is not None and (status.taken_at is None or launch.launched_at > status.taken_at)
    if launched and launch.launched_at is not None:
        on_request = launch.reason not in application.DEATH_REASONS
        first = status.taken_at is None
        return (on_request or first) and now - launch.launched_at < _START_LIMIT  # 1
    if launch.launching or status.taken_at is None:
        return True  # 2, 3
    return status.taken_at < launch.platform_started_at and now - launch.platform_started_at < _START_LIMIT  # 3


def _is_healthy(status: ApplicationStatus, diagnosis: Diagnosis | None) -> bool:
    """Whether the application is finishing batches, or is stopped on request."""
    if diagnosis in (Diagnosis.DOWN, Diagnosis.HUNG, Diagnosis.NO_INPUT):
        return False
    return not status.alive or status.batch_at is not None


def _why_down(status: ApplicationStatus, diagnosis: Diagnosis | None, now: datetime) -> str:
    since = status.batch_at or status.taken_at
    last = f"its last batch ended {in_words((now - since).total_seconds())} ago" if since else "it has never run"
    return f"no process holds its lease; {last}" if diagnosis is Diagnosis.DOWN else f"its process is alive, but {last}"


def _launches(connection: Connection, names: list[str]) -> dict[str, Launches]:
    parameters = (_DEATHS_WINDOW, list(application.DEATH_REASONS), names)
    rows: list[tuple[Any, ...]] = connection.execute(_LAUNCHES, parameters).fetchall()
    return {row[0]: Launches(*row) for row in rows}
