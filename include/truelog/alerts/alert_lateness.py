"""Finds views that drop many events, because the events reach the log later than the view's `allowed_lateness`."""

from collections.abc import Iterator
from typing import Any

from psycopg import sql

from truelog.alerts.alert_rules import Finding, Observation
from truelog.storage import db_snapshot
from truelog.storage.database import Connection
from truelog.support.settings import Settings
from truelog.views import catalogue

LATENESS_KINDS = ("late_events_dropped",)
_SIDE = "dropped"
_DROPPING = """
    SELECT view, version FROM truelog.deployed JOIN truelog.view USING (view, version)
    WHERE view = ANY(%s) AND %s = ANY(sides) ORDER BY view
"""


def observe(settings: Settings) -> Observation:
    """One finding for each view that dropped a large share of the events of this hour and the hour before."""
    with db_snapshot.read_snapshot(settings) as connection:
        return Observation(tuple(_findings(settings, connection)))


def _findings(settings: Settings, connection: Connection) -> Iterator[Finding]:
    names = catalogue.view_names(settings.views_folder)
    views: list[tuple[Any, ...]] = connection.execute(_DROPPING, (names, _SIDE)).fetchall()
    for view, version in views:
        query = sql.SQL(
            "SELECT coalesce(sum(events), 0)::bigint, coalesce(sum(dropped), 0)::bigint FROM {} "
            "WHERE hour >= date_trunc('hour', now(), 'UTC') - interval '1 hour'"
        ).format(sql.Identifier("state", catalogue.table_name(view, version, _SIDE)))
        counted: Any = connection.execute(query).fetchone()
        events, dropped = counted
        if dropped > settings.alert_dropped_share * events:
            share = f"{dropped:,} of {events:,} events ({100 * dropped / events:.1f} %)"
            yield Finding("late_events_dropped", view, f"{share} came too late in this hour and the hour before")
