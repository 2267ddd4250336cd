"""The watch: every source of alerts looks again and again, each at its own pace and apart from the others.

A source that cannot look resolves nothing, and that it cannot is an alert of its own.
"""

import logging
from collections.abc import Sequence
from datetime import timedelta
from functools import partial

import psycopg

from truelog.alerts import alert_applications, alert_lag, alert_resources, alert_store, alert_verification
from truelog.alerts.alert import SOURCE_DOWN, Finding, Observation, Source
from truelog.alerts.alert_receiver import configured
from truelog.storage.database import Connection, connect
from truelog.support.background import Background
from truelog.support.errors import TruelogError
from truelog.support.settings import Settings

SOURCES = (
    Source("applications", alert_applications.APPLICATION_KINDS, 2.0, alert_applications.observe),
    Source("lag", alert_lag.LAG_KINDS, 5.0, alert_lag.observe),
    Source("reconcile", alert_verification.VIEW_KINDS, 15.0, alert_verification.observe_views),
    Source("archive", alert_verification.ARCHIVE_KINDS, 15.0, alert_verification.observe_archive),
    Source("events", alert_verification.EVENT_KINDS, 15.0, alert_verification.observe_events),
    Source("dead letters", alert_resources.DEAD_LETTERS, 15.0, alert_resources.observe_dead_letters),
    Source("disk", alert_resources.DISK, 15.0, alert_resources.observe_disk),
)
_NEGLECTED = 60.0  # seconds after which a source that has not looked is missed

log = logging.getLogger(__name__)


def watcher_threads(settings: Settings) -> list[Background]:
    """One for each source."""
    return [Background(f"alerts: {each.name}", partial(watch_once, settings, each), each.every) for each in SOURCES]


def watch_once(settings: Settings, source: Source) -> None:
    """One look, kept; where PostgreSQL is away nobody can be told, and the next look comes soon."""
    sight = observe(settings, source)
    try:
        with connect(settings) as connection:
            record(settings, connection, source, sight)
    except psycopg.Error as away:
        log.warning("alerts of %s were not kept: %s", source.name, away)
    except Exception:  # a defect, and no reason to look away from now on
        log.exception("alerts of %s", source.name)


def observe(settings: Settings, source: Source) -> Observation:
    """What the source sees; whatever befalls it is what it is blind by."""
    try:
        return source.look(settings)
    except (TruelogError, psycopg.Error, OSError) as error:
        reason = str(error)
    except Exception as error:
        log.exception("the look at %s", source.name)
        reason = f"{type(error).__name__}: {error}"
    return Observation((Finding(SOURCE_DOWN, source.name, reason),), blind=True)


def record(settings: Settings, connection: Connection, source: Source, sight: Observation) -> None:
    """What was seen, and that it was looked for."""
    repeat = timedelta(seconds=settings.alert_repeat_seconds)
    alert_store.record_observation(connection, source, sight, configured(settings), repeat)
    blind = sight.findings[0].cause if sight.blind else ""
    connection.execute(
        "INSERT INTO truelog.alert_source (source, looked_at, blind) VALUES (%s, now(), %s) "
        "ON CONFLICT (source) DO UPDATE SET looked_at = excluded.looked_at, blind = excluded.blind",
        (source.name, blind),
    )


def overdue_sources(connection: Connection, sources: Sequence[Source] = SOURCES) -> list[str]:
    """The sources that nobody looks at: while there are any, that nothing is wrong says nothing."""
    rows = connection.execute(
        "SELECT name FROM unnest(%s::text[]) WITH ORDINALITY AS wanted (name, place) WHERE NOT EXISTS ("
        "SELECT FROM truelog.alert_source WHERE source = name AND looked_at > now() - make_interval(secs => %s)"
        ") ORDER BY place",
        ([source.name for source in sources], _NEGLECTED),
    )
    return [str(name) for (name,) in rows.fetchall()]


def blinded(connection: Connection) -> list[str]:
    """The sources whose last look failed."""
    rows = connection.execute("SELECT source FROM truelog.alert_source WHERE blind <> '' ORDER BY source")
    return [str(source) for (source,) in rows.fetchall()]
