"""The launches of applications: which application is being started and therefore does not count as down."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from truelog.control import application
from truelog.control.application import ApplicationStatus, Diagnosis
from truelog.storage.database import Connection
from truelog.storage.locks import Locks
from truelog.support.settings import Settings

DEATHS_WINDOW = timedelta(minutes=10)
_START_LIMIT = timedelta(minutes=3)  # from the start of the application or the platform to the first lease

_LAUNCHES = f"""
    SELECT application, newest.reason, newest.launched_at, (
        SELECT count(*) FROM truelog.launch l WHERE l.application = a.application AND l.launched_at > now() - %s
            AND reason = ANY(%s)
    ), EXISTS (
        SELECT FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1 AND granted
            AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
            AND (classid::bigint << 32) | objid::bigint = {Locks.LAUNCH.of("a.application")}
    ), pg_postmaster_start_time(), (
        SELECT coalesce(array_agg(launched_at ORDER BY launched_at), '{{}}') FROM truelog.launch l
        WHERE l.application = a.application AND l.launched_at > now() - interval '1 day' AND reason = ANY(%s)
    )
    FROM unnest(%s::text[]) AS a (application) LEFT JOIN LATERAL (
        SELECT reason, launched_at FROM truelog.launch l WHERE l.application = a.application ORDER BY id DESC LIMIT 1
    ) newest ON true
"""  # noqa: S608  constants


@dataclass(frozen=True)
class Launches:
    """An application's last launch and recent deaths, and whether the launcher is working on the application now."""

    application: str
    reason: str | None
    launched_at: datetime | None
    deaths: int
    launching: bool
    platform_started_at: datetime  # start of PostgreSQL
    died_at: Sequence[datetime] = ()  # the starts of the last day that followed a death, oldest first


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


def resting_until(
    settings: Settings, status: ApplicationStatus, found: Diagnosis | None, launch: Launches, now: datetime
) -> datetime | None:
    """The time of the next start attempt, if the application died too often and therefore RESTS. Otherwise None."""
    if found not in (Diagnosis.DOWN, Diagnosis.HUNG):
        return None
    window = timedelta(seconds=settings.deaths_seconds)
    if found is Diagnosis.HUNG:  # each hang is detected only after the silence limit
        limit = application.silence_limits(settings, status.application).for_status(status)
        window += settings.deaths_allowed * limit
    recent = [at for at in launch.died_at if now - at < window]
    return recent[-settings.deaths_allowed] + window if len(recent) >= settings.deaths_allowed else None


def launches(connection: Connection, names: Sequence[str]) -> dict[str, Launches]:
    """The launches of each named application."""
    deaths = list(application.DEATH_REASONS)
    parameters = (DEATHS_WINDOW, deaths, deaths, list(names))
    rows = connection.execute(_LAUNCHES, parameters).fetchall()
    return {row[0]: Launches(*row) for row in rows}
