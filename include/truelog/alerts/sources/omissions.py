"""Finds what views leave out: late events, groups with too many inputs or a failing fold, records on which a transform
fails, and what came after an old build.
"""

from collections.abc import Iterator

from psycopg import sql

from truelog.alerts.rules import Finding, Observation
from truelog.storage import db_snapshot
from truelog.storage.database import Connection
from truelog.support.durations import in_words
from truelog.support.settings import Settings
from truelog.views import catalogue

OMISSION_KINDS = ("late_events_dropped", "groups_oversized", "groups_failed", "records_excluded", "build_overdue")
_SIDE = "dropped"
_DROPPING = """
    SELECT view, version FROM truelog.deployed JOIN truelog.view USING (view, version)
    WHERE view = ANY(%s) AND %s = ANY(sides) ORDER BY view
"""
_OVERSIZED = """
    SELECT view, count(*)
    FROM truelog.deployed JOIN truelog.oversized_group USING (view, version)
    WHERE view = ANY(%s) GROUP BY view ORDER BY view
"""
# The last group of each view whose fold failed, and the number of all of them.
_FAILED = """
    SELECT DISTINCT ON (view) view, error, count(*) OVER (PARTITION BY view)
    FROM truelog.deployed JOIN truelog.failed_group USING (view, version)
    WHERE view = ANY(%s) ORDER BY view, noticed_at DESC
"""
# The last record that each view has excluded within an hour, and the number of all of them.
_EXCLUDED = """
    SELECT DISTINCT ON (view) view, topic, partition, "offset", error, count(*) OVER (PARTITION BY view)
    FROM truelog.deployed JOIN truelog.exclusion USING (view, version)
    WHERE view = ANY(%s) AND noticed_at > now() - interval '1 hour' ORDER BY view, noticed_at DESC, "offset" DESC
"""
_OVERDUE = """
    SELECT view, built_at IS NOT NULL, age, reason FROM truelog.batch_only LEFT JOIN truelog.batch_refusal USING (view)
    WHERE view = ANY(%s) AND age > %s ORDER BY view
"""


def observe(settings: Settings) -> Observation:
    """One finding for each view and each way to leave something out, or to be built too long ago."""
    names = catalogue.view_names(settings.views_folder)
    with db_snapshot.read_snapshot(settings) as connection:
        late, oversized = _late_events(settings, connection, names), _oversized_groups(connection, names)
        failed, excluded = _failed_groups(connection, names), _excluded_records(connection, names)
        return Observation((*late, *oversized, *failed, *excluded, *_overdue_builds(settings, connection, names)))


def _late_events(settings: Settings, connection: Connection, names: list[str]) -> Iterator[Finding]:
    """One finding for each view that dropped a large share of the events of this hour and the hour before."""
    views = connection.execute(_DROPPING, (names, _SIDE)).fetchall()
    for view, version in views:
        query = sql.SQL(
            "SELECT coalesce(sum(events), 0)::bigint, coalesce(sum(dropped), 0)::bigint FROM {} "
            "WHERE hour >= date_trunc('hour', now(), 'UTC') - interval '1 hour'"
        ).format(sql.Identifier("state", catalogue.table_name(view, version, _SIDE)))
        [(events, dropped)] = connection.execute(query).fetchall()
        if dropped > settings.alert_dropped_share * events:
            share = f"{dropped:,} of {events:,} events ({100 * dropped / events:.1f} %)"
            yield Finding("late_events_dropped", view, f"{share} came too late in this hour and the hour before")


def _oversized_groups(connection: Connection, names: list[str]) -> Iterator[Finding]:
    oversized = connection.execute(_OVERSIZED, (names,)).fetchall()
    for view, number in oversized:
        yield Finding("groups_oversized", view, f"groups too large: {number:,}; see `truelog.oversized_group`")


def _failed_groups(connection: Connection, names: list[str]) -> Iterator[Finding]:
    for view, error, number in connection.execute(_FAILED, (names,)).fetchall():
        cause = f"groups without rows: {number:,}; see `truelog.failed_group`. The last error: {error}"
        yield Finding("groups_failed", view, cause)


def _excluded_records(connection: Connection, names: list[str]) -> Iterator[Finding]:
    for view, topic, partition, offset, error, number in connection.execute(_EXCLUDED, (names,)).fetchall():
        yield Finding(
            "records_excluded", view, f"{number:,} in the last hour, at last {topic} {partition}:{offset}: {error}"
        )


def _overdue_builds(settings: Settings, connection: Connection, names: list[str]) -> Iterator[Finding]:
    """One finding for each batch-only view that was not built for too long."""
    overdue = connection.execute(_OVERDUE, (names, settings.alert_unbuilt_seconds)).fetchall()
    for view, *facts in overdue:
        yield Finding("build_overdue", view, _cause(*facts))


def _cause(was_built: bool, age: float, refusal: str | None) -> str:
    since = f"its last build ended {in_words(age)} ago" if was_built else f"created {in_words(age)} ago and never built"
    return f"{since}; it cannot be built: {refusal}" if refusal else since
