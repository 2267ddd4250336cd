"""What is wrong with the applications: one is down, there is nothing to read for them, one dies again and again.

Who is being started, by a release, by somebody's wish or with the whole platform, is neither down nor well yet.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from truelog.alerts.alert import Finding, Observation
from truelog.apps.liveness import diagnose
from truelog.control import application
from truelog.control.application import Diagnosis, Status
from truelog.storage import db_snapshot
from truelog.storage.database import Connection
from truelog.support.durations import in_words
from truelog.support.settings import Settings

APPLICATION_KINDS = ("application_down", "no_input", "application_restarting")
LOG_SUBJECT = Finding("no_input", "log", "").key
_STARTING = timedelta(minutes=3)  # that a start, of an application or of the platform, may take to the first lease
_DEATHS = timedelta(minutes=10)

_ASK = """
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
    """The last start of an application, how often it died of late, and whether the launcher is at work on it now."""

    application: str
    reason: str | None
    at: datetime | None
    deaths: int
    at_work: bool
    platform_at: datetime  # since when PostgreSQL runs, and so the platform


def observe(settings: Settings) -> Observation:
    """At every application."""
    with db_snapshot.read_snapshot(settings) as connection:
        statuses = {name: application.status(connection, name) for name in application.application_names(settings)}
        launches = _launches(connection, list(statuses))
    now = datetime.now(UTC)
    found = {name: diagnose(settings, status, now) for name, status in statuses.items()}
    findings, unseen = list[Finding](), set[str]()
    for name, status in statuses.items():
        down = Finding("application_down", name, _why_down(status, found[name], now))
        if found[name] in (Diagnosis.DOWN, Diagnosis.HUNG) and not is_starting(status, launches[name], now):
            findings.append(down)
        elif not _is_well(status, found[name]):
            unseen.add(down.key)
        if (deaths := launches[name].deaths) >= settings.alert_deaths:
            within = in_words(_DEATHS.total_seconds())
            findings.append(Finding("application_restarting", name, f"it died or hung {deaths} times within {within}"))
    if starved := [name for name in statuses if found[name] is Diagnosis.NO_INPUT]:
        findings.append(Finding("no_input", "log", f"nothing comes for {', '.join(starved)}"))
    return Observation(tuple(findings), frozenset(unseen))


def is_starting(status: Status, launch: Launches, now: datetime) -> bool:
    """Whether one that is dead is no incident, or not yet.

    1. Somebody wished its start, or a release did.
    2. The launcher is at work on it and has not said why.
    3. It has not run since the platform was started, a moment ago; or was never asked for.
    """
    if status.alive:
        return False
    launched = launch.at is not None and (status.taken_at is None or launch.at > status.taken_at)
    if launched and launch.at is not None:
        wished = launch.reason not in application.DEATH_REASONS
        first = status.taken_at is None
        return (wished or first) and now - launch.at < _STARTING  # 1
    if launch.at_work or status.taken_at is None:
        return True  # 2, 3
    return status.taken_at < launch.platform_at and now - launch.platform_at < _STARTING  # 3


def _is_well(status: Status, found: Diagnosis | None) -> bool:
    """It makes batches, or stands as somebody wants it to."""
    if found in (Diagnosis.DOWN, Diagnosis.HUNG, Diagnosis.NO_INPUT):
        return False
    return not status.alive or status.batch_at is not None


def _why_down(status: Status, found: Diagnosis | None, now: datetime) -> str:
    since = status.batch_at or status.taken_at
    silent = f"ended its last batch {in_words((now - since).total_seconds())} ago" if since else "has never run"
    return f"no process holds its lease; it {silent}" if found is Diagnosis.DOWN else f"it lives, and {silent}"


def _launches(connection: Connection, names: list[str]) -> dict[str, Launches]:
    rows: list[tuple[Any, ...]] = connection.execute(_ASK, (_DEATHS, list(application.DEATH_REASONS), names)).fetchall()
    return {row[0]: Launches(*row) for row in rows}
