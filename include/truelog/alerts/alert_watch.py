"""The watch: every source of alerts looks again and again, each at its own pace and apart from the others.

A source that cannot look resolves nothing, and that it cannot is an alert of its own.
"""

import logging
from collections.abc import Sequence
from datetime import timedelta
from functools import partial

import psycopg

from truelog.alerts import alert_applications, alert_lag, alert_resources, alert_store, alert_verification
from truelog.alerts.alert import UNWATCHED, Finding, Sight, Source
from truelog.alerts.alert_receiver import configured
from truelog.storage.database import Connection, connect
from truelog.support.background import Background
from truelog.support.errors import TruelogError
from truelog.support.settings import Settings

SOURCES = (
    Source("applications", alert_applications.KINDS, 2.0, alert_applications.look),
    Source("lag", alert_lag.KINDS, 5.0, alert_lag.look),
    Source("reconcile", alert_verification.OF_VIEWS, 15.0, alert_verification.views),
    Source("archive", alert_verification.OF_ARCHIVE, 15.0, alert_verification.archive),
    Source("events", alert_verification.OF_EVENTS, 15.0, alert_verification.events),
    Source("dead letters", alert_resources.DEAD_LETTERS, 15.0, alert_resources.dead_letters),
    Source("disk", alert_resources.DISK, 15.0, alert_resources.disk),
)
_NEGLECTED = 60.0  # seconds after which a source that has not looked is missed

log = logging.getLogger(__name__)


def threads(settings: Settings) -> list[Background]:
    """One for each source."""
    return [Background(f"alerts: {each.name}", partial(look, settings, each), each.every) for each in SOURCES]


def look(settings: Settings, source: Source) -> None:
    """One look, kept; where PostgreSQL is away nobody can be told, and the next look comes soon."""
    sight = see(settings, source)
    try:
        with connect(settings) as connection:
            keep(settings, connection, source, sight)
    except psycopg.Error as away:
        log.warning("alerts of %s were not kept: %s", source.name, away)
    except Exception:  # a defect, and no reason to look away from now on
        log.exception("alerts of %s", source.name)


def see(settings: Settings, source: Source) -> Sight:
    """What the source sees; whatever befalls it is what it is blind by."""
    try:
        return source.look(settings)
    except (TruelogError, psycopg.Error, OSError) as error:
        reason = str(error)
    except Exception as error:
        log.exception("the look at %s", source.name)
        reason = f"{type(error).__name__}: {error}"
    return Sight((Finding(UNWATCHED, source.name, reason),), blind=True)


def keep(settings: Settings, connection: Connection, source: Source, sight: Sight) -> None:
    """What was seen, and that it was looked for."""
    repeat = timedelta(seconds=settings.alert_repeat_seconds)
    alert_store.looked(connection, source, sight, configured(settings), repeat)
    blind = sight.findings[0].cause if sight.blind else ""
    connection.execute(
        "INSERT INTO truelog.alert_source (source, looked_at, blind) VALUES (%s, now(), %s) "
        "ON CONFLICT (source) DO UPDATE SET looked_at = excluded.looked_at, blind = excluded.blind",
        (source.name, blind),
    )


def neglected(connection: Connection, sources: Sequence[Source] = SOURCES) -> list[str]:
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
