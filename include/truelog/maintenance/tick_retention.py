"""Tick retention: deletes stored ticks that no view's clock can need. The archive retains all ticks.

A view's clock is the time of a tick and never goes back as the view's positions advance. A view therefore needs

1. the tick that is its current clock, and the later ticks that it has read, because some may not count yet
2. the ticks that it has not read, if an application is running the view; otherwise the view reads these ticks later

No tick is deleted while an application is running a view that reads ticks but has no positions yet, because the view
may be reading old ticks.
"""

from collections.abc import Sequence
from typing import Any

from truelog.kernel import clock
from truelog.log.positions import Positions
from truelog.reconcile import row_diff
from truelog.storage.database import Connection, read_value
from truelog.tables.compiled_view import CompiledView
from truelog.views.catalogue import table_name

_BATCH = 50_000  # ticks deleted in one transaction; a stream that stores a tick waits for that transaction

_Need = tuple[str, int, int | None]  # topic id, first needed offset, offset after the last needed tick

# Superseded versions count too, because their code may be restored.
_POSITIONS = """
    SELECT view, version, jsonb_object_agg(topic, offsets), jsonb_object_agg(topic, topic_id), EXISTS (
        SELECT FROM truelog.standing s WHERE s.view = p.view AND s.version = p.version
    )
    FROM (
        SELECT view, version, topic, topic_id, jsonb_object_agg(partition::text, next_offset) AS offsets
        FROM truelog.position GROUP BY view, version, topic, topic_id
    ) AS p GROUP BY view, version HAVING bool_or(topic = %s) ORDER BY view, version
"""
_STARTING = """
    SELECT FROM truelog.standing s WHERE version IS NOT NULL AND NOT EXISTS (
        SELECT FROM truelog.position p WHERE p.view = s.view AND p.version = s.version
    ) AND (view, version) NOT IN (SELECT * FROM unnest(%s::text[], %s::integer[]))
"""
_DROP = """
    DELETE FROM truelog.tick WHERE ctid = ANY(ARRAY(
        SELECT ctid FROM truelog.tick AS t WHERE NOT EXISTS (
            SELECT FROM unnest(%s::text[], %s::bigint[], %s::bigint[]) AS need(topic_id, since, before)
            WHERE need.topic_id = t.topic_id AND t."offset" >= since AND (before IS NULL OR t."offset" < before)
        ) LIMIT %s
    ))
"""


def drop_old_ticks(connection: Connection, known: Sequence[CompiledView] = ()) -> int:
    """Delete the ticks that no view needs and return their number. Views not in `known` are assumed to read ticks.

    Views are locked against comparisons, because a comparison reads the clock at earlier positions.
    """
    timeless = [each for each in known if clock.TOPIC not in each.view.topics]
    for view, version, *_ in _positions(connection):
        row_diff.lock_comparisons(connection, table_name(view, version))
    dropped = 0
    while batch := _drop_batch(connection, timeless):
        dropped += batch
    return dropped


def _drop_batch(connection: Connection, timeless: Sequence[CompiledView]) -> int:
    with connection.transaction():
        # A view that starts now stores its ticks after this transaction, which can see any view that started earlier.
        connection.execute("LOCK TABLE truelog.tick IN SHARE ROW EXCLUSIVE MODE")
        names, versions = [each.name for each in timeless], [each.view.version for each in timeless]
        if connection.execute(_STARTING, (names, versions)).fetchone() is not None:
            return 0
        needs = [_needed(connection, *each[2:]) for each in _positions(connection)]
        ids, since, before = (list(each) for each in zip(*needs, strict=True)) if needs else ([], [], [])
        return connection.execute(_DROP, (ids, since, before, _BATCH)).rowcount


def _positions(connection: Connection) -> list[tuple[Any, ...]]:
    """The views that read ticks: name, version, topic offsets, topic ids, and whether an application runs the view."""
    return connection.execute(_POSITIONS, (clock.TOPIC,)).fetchall()


def _needed(connection: Connection, offsets: dict[str, dict[str, int]], ids: dict[str, str], run: bool) -> _Need:
    positions = Positions({topic: {int(p): o for p, o in by.items()} for topic, by in offsets.items()}, ids)
    now = clock.at(connection, positions, set(ids) - {clock.TOPIC})
    query = 'SELECT coalesce(min("offset"), 0) FROM truelog.tick WHERE topic_id = %s AND time = %s'
    first = read_value(connection, query, (ids[clock.TOPIC], now))
    return ids[clock.TOPIC], first, None if run else positions.at(clock.TOPIC, 0)
