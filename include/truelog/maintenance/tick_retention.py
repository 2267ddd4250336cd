"""Old ticks: those that no view's clock can need any more. The archive has all of them anyway.

The clock of a view that stands at V is the time of some tick, and at no later positions is it that of an earlier one.
So a view needs

1. the tick that is its clock now, and those after it that it has read: some of them may not count yet;
2. those that it has not read, while an application runs it. One that nobody runs reads them again when it goes on.

Nothing is dropped while a view that reads ticks is run and stands nowhere yet: it may be reading those of long ago.
"""

from collections.abc import Sequence
from typing import Any

from truelog.kernel import clock
from truelog.log.positions import Positions
from truelog.reconcile import row_diff
from truelog.storage.database import Connection
from truelog.views.catalogue import table_name
from truelog.views.compiled_view import Compiled

_PORTION = 50_000  # ticks dropped at once: streams that want to remember one wait that long

_NEEDS = tuple[str, int, int | None]  # of the topic with this id: from this offset, before that one

# Superseded versions count as well: their code may be restored.
_STANDS = """
    SELECT view, version, jsonb_object_agg(topic, offsets), jsonb_object_agg(topic, topic_id), EXISTS (
        SELECT FROM truelog.standing s WHERE s.view = p.view AND s.version = p.version
    )
    FROM (
        SELECT view, version, topic, topic_id, jsonb_object_agg(partition::text, next_offset) AS offsets
        FROM truelog.position GROUP BY view, version, topic, topic_id
    ) AS p GROUP BY view, version HAVING bool_or(topic = %s) ORDER BY view, version
"""
_BEGIN = """
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


def drop_old_ticks(connection: Connection, known: Sequence[Compiled] = ()) -> int:
    """Drop them; how many there were. Of views that are not known it is taken that they read ticks.

    No view is compared meanwhile: a comparison asks at positions of the past.
    """
    timeless = [each for each in known if clock.TOPIC not in each.view.topics]
    for view, version, *_ in _stands(connection):
        row_diff.lock_comparisons(connection, table_name(view, version))
    dropped = 0
    while portion := _drop_portion(connection, timeless):
        dropped += portion
    return dropped


def _drop_portion(connection: Connection, timeless: Sequence[Compiled]) -> int:
    with connection.transaction():
        # A view that begins now remembers its ticks after this, one that has begun is seen to.
        connection.execute("LOCK TABLE truelog.tick IN SHARE ROW EXCLUSIVE MODE")
        names, versions = [each.name for each in timeless], [each.view.version for each in timeless]
        if connection.execute(_BEGIN, (names, versions)).fetchone() is not None:
            return 0
        needs = [_needed(connection, *each[2:]) for each in _stands(connection)]
        ids, since, before = (list(each) for each in zip(*needs, strict=True)) if needs else ([], [], [])
        return connection.execute(_DROP, (ids, since, before, _PORTION)).rowcount


def _stands(connection: Connection) -> list[tuple[Any, ...]]:
    """Each view that reads ticks: name and version, offsets and ids of its topics, and whether it is run."""
    return connection.execute(_STANDS, (clock.TOPIC,)).fetchall()


def _needed(connection: Connection, offsets: dict[str, dict[str, int]], ids: dict[str, str], run: bool) -> _NEEDS:
    stands = Positions({topic: {int(p): o for p, o in by.items()} for topic, by in offsets.items()}, ids)
    now = clock.at(connection, stands, set(ids) - {clock.TOPIC})
    found = connection.execute(
        'SELECT coalesce(min("offset"), 0) FROM truelog.tick WHERE topic_id = %s AND time = %s', (ids[clock.TOPIC], now)
    ).fetchone()
    assert found is not None  # noqa: S101
    return ids[clock.TOPIC], int(str(found[0])), None if run else stands.at(clock.TOPIC, 0)
