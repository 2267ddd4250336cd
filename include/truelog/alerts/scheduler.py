"""The watch: every alert source observes at its own interval, independently of the other sources.

A source that cannot observe resolves no alerts, and its failure causes a separate alert. A new source is listed here.
"""

import logging
from collections.abc import Sequence
from datetime import timedelta
from functools import partial

import psycopg

from truelog.alerts import store
from truelog.alerts.receiver import configured
from truelog.alerts.rules import SOURCE_DOWN, Finding, NotificationPolicy, Observation, Source
from truelog.alerts.sources import (
    applications,
    captured_rows,
    commands,
    declarations,
    lag,
    notifications,
    omissions,
    resources,
    unfinished,
    verification,
)
from truelog.lag import limits as lag_limits
from truelog.storage.database import Connection
from truelog.storage.kept_sessions import kept
from truelog.support.background import Background
from truelog.support.errors import TruelogError
from truelog.support.settings import Settings

SOURCES = (
    Source("applications", applications.APPLICATION_KINDS, 2.0, applications.observe),
    Source("lag", lag.LAG_KINDS, 5.0, lag.observe),
    Source("reconcile", verification.VIEW_KINDS, 15.0, verification.observe_views),
    Source("archive", verification.ARCHIVE_KINDS, 15.0, verification.observe_archive),
    Source("events", verification.EVENT_KINDS, 15.0, verification.observe_events),
    Source("dead letters", resources.DEAD_LETTER_KINDS, 15.0, resources.observe_dead_letters),
    Source("declarations", declarations.DECLARATION_KINDS, 5.0, declarations.observe),
    Source("omissions", omissions.OMISSION_KINDS, 15.0, omissions.observe),
    Source("unfinished work", unfinished.UNFINISHED_KINDS, 15.0, unfinished.observe),
    Source("outputs", lag.OUTPUT_KINDS, 5.0, lag.observe_outputs),
    Source("notifications", notifications.NOTIFICATION_KINDS, 5.0, notifications.observe),
    Source("commands", commands.COMMAND_KINDS, 5.0, commands.observe),
    Source("disk", resources.DISK_KINDS, 15.0, resources.observe_disk),
    Source("clock", resources.CLOCK_KINDS, 15.0, resources.observe_clock),
    Source("capture", resources.CAPTURE_KINDS, 15.0, resources.observe_capture),
    Source("captured rows", captured_rows.CAPTURED_ROW_KINDS, 15.0, captured_rows.observe),
)
_OVERDUE = 60.0  # seconds since the last observation of a source

log = logging.getLogger(__name__)


def watcher_threads(settings: Settings) -> list[Background]:
    """One background thread for each source."""
    return [
        Background(f"alerts: {source.name}", partial(watch_once, settings, source), source.interval)
        for source in SOURCES
    ]


def watch_once(settings: Settings, source: Source) -> None:
    """Observe once and record the result. If PostgreSQL is down, the result is lost, but another follows soon."""
    observation = observe(settings, source)
    try:
        with kept(settings) as connection, connection.transaction():
            record(settings, connection, source, observation)
    except psycopg.Error as error:
        log.warning("Alerts from the %s source were not recorded: %s", source.name, error)
    except Exception:  # a defect must not end the watch
        log.exception("Alerts from the %s source were not recorded", source.name)


def observe(settings: Settings, source: Source) -> Observation:
    """A source's observation. If the source fails, its observation is blind, and the reason is the only finding."""
    try:
        return source.observe(settings)
    except (TruelogError, psycopg.Error, OSError) as error:
        reason = str(error)
    except Exception as error:
        log.exception("The %s source failed", source.name)
        reason = f"{type(error).__name__}: {error}"
    return Observation((Finding(SOURCE_DOWN, source.name, reason),), blind=True)


def record(settings: Settings, connection: Connection, source: Source, observation: Observation) -> None:
    """Record an observation and the time of the observation."""
    repeat = timedelta(seconds=settings.alert_repeat_seconds)
    application_of = partial(lag_limits.application_of_reader, settings)
    policy = NotificationPolicy(configured(settings), repeat, application_of)
    store.record_observation(connection, source, observation, policy)
    blind = observation.findings[0].cause if observation.blind else ""
    connection.execute(
        "INSERT INTO truelog.alert_source (source, looked_at, blind) VALUES (%s, now(), %s) "
        "ON CONFLICT (source) DO UPDATE SET looked_at = excluded.looked_at, blind = excluded.blind",
        (source.name, blind),
    )


def overdue_sources(connection: Connection, sources: Sequence[Source] = SOURCES) -> list[str]:
    """The sources without a recent observation. If any source is overdue, the absence of alerts proves nothing."""
    rows = connection.execute(
        "SELECT name FROM unnest(%s::text[]) WITH ORDINALITY AS wanted (name, place) WHERE NOT EXISTS ("
        "SELECT FROM truelog.alert_source WHERE source = name AND looked_at > now() - make_interval(secs => %s)"
        ") ORDER BY place",
        ([source.name for source in sources], _OVERDUE),
    )
    return [name for (name,) in rows.fetchall()]


def blind_sources(connection: Connection) -> list[str]:
    """The sources whose last observation failed."""
    rows = connection.execute("SELECT source FROM truelog.alert_source WHERE blind <> '' ORDER BY source")
    return [source for (source,) in rows.fetchall()]
