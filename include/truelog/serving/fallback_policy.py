"""Need: which views the batch layer is to answer for, and whether the archive has what their readers lack.

A view needs an answer when its application made no batch for a while, whether it was stopped, died or hangs; when it
stands still; or when its rows are known to be wrong. It is given one where the archive has all that readers see now,
and more, so that nobody goes back in time; or where what they see is wrong. It needs none any more when the stream has
all of that answer.

This is asked every few minutes, nearly always for nothing: what reads the archive is only loaded where it is read.
"""

import logging
from collections.abc import Sequence
from typing import Any

from psycopg import sql

from truelog.control import application
from truelog.log.positions import Positions
from truelog.serving import serving_status
from truelog.storage.database import Connection, connect
from truelog.support.errors import TopicRecreated
from truelog.support.settings import Settings
from truelog.views import catalogue

_NEEDY = """
    SELECT n.view, n.version, v.reads, f.files IS NOT DISTINCT FROM %(files)s
    FROM truelog.answer n JOIN truelog.view v USING (view, version)
    LEFT JOIN truelog.quarantine q USING (view, version)
    LEFT JOIN truelog.batch_answer a USING (view, version)
    LEFT JOIN truelog.standing s ON s.view = n.view
    LEFT JOIN truelog.lease l ON l.application = s.application
    LEFT JOIN truelog.batch_refusal f ON f.view = n.view
    CROSS JOIN (SELECT now() - make_interval(secs => %(seconds)s) AS then) t
    WHERE n.view = ANY(%(known)s) AND coalesce(a.made_at < t.then, true)
        AND (q.since < t.then OR (s.state = 'STALLED' AND s.since < t.then)
            OR coalesce(l.batch_at, l.taken_at) < t.then)
    ORDER BY n.view
"""

log = logging.getLogger("truelog.need")


def views_due(settings: Settings) -> list[str]:
    """The views that need an answer and can be given one; those that are needed no more are dropped."""
    known, files = catalogue.view_names(settings.views_folder), application.digest(settings)
    with connect(settings, autocommit=True) as connection:
        drop_unneeded_fallbacks(connection)
        asked = {"known": known, "files": files, "seconds": settings.batch_answer_seconds}
        needy: list[tuple[Any, ...]] = connection.execute(_NEEDY, asked).fetchall()
        names = [view for view, *_ in needy]
        connection.execute("DELETE FROM truelog.batch_refusal WHERE view <> ALL(%s)", (names,))
        wanted = [(view, version, reads) for view, version, reads, refused in needy if not refused]
        return [view for view, version, reads in wanted if _has_news(settings, connection, (view, version), reads)]


def _has_news(settings: Settings, connection: Connection, view: tuple[str, int], reads: Sequence[str]) -> bool:
    from truelog.archive.archive_table import archived_positions

    seen = served_positions(connection, *view)
    archived = archived_positions(settings, {*reads, *seen.offsets})
    try:
        return has_news(archived, seen, doubted=is_quarantined(connection, *view))
    except TopicRecreated as error:
        log.warning("%s gets no answer from the batch layer: %s", view[0], error)
        return False


def has_news(archived: Positions, seen: Positions, *, doubted: bool) -> bool:
    """Whether readers who see `seen` may be given what is archived, and gain by it.

    Raises:
        TopicRecreated: the two are of different topics of one name.
    """
    archived.require_same_topics(seen)
    return bool(archived.offsets) and (doubted or (archived.covers(seen) and not seen.covers(archived)))


def served_positions(connection: Connection, view: str, version: int) -> Positions:
    """Up to where readers of the view see the log."""
    query = (
        "SELECT topic, partition, next_offset, topic_id FROM truelog.served_position WHERE (view, version) = (%s, %s)"
    )
    return Positions.of_rows(connection.execute(query, (view, version)).fetchall())


def is_quarantined(connection: Connection, view: str, version: int) -> bool:
    """Whether readers see rows that are known to be wrong."""
    found = connection.execute(
        "SELECT FROM truelog.quarantine q WHERE (view, version) = (%(view)s, %(version)s) AND NOT EXISTS "
        "(SELECT FROM truelog.batch_layer WHERE (view, version) = (%(view)s, %(version)s))",
        {"view": view, "version": version},
    )
    return found.fetchone() is not None


def drop_unneeded_fallbacks(connection: Connection) -> list[str]:
    """Drop the answers that no reader gets: the stream has all of them, or another version is shown."""
    kept: list[tuple[Any, ...]] = connection.execute("SELECT view, version FROM truelog.batch_answer").fetchall()
    return [view for view, version in kept if _dropped(connection, view, version)]


def _dropped(connection: Connection, view: str, version: int) -> bool:
    with connection.transaction():
        lock_fallback(connection, catalogue.table_name(view, version))
        unneeded = connection.execute(
            "DELETE FROM truelog.batch_answer WHERE (view, version) = (%s, %s) AND (view, version) NOT IN "
            "(SELECT view, version FROM truelog.answer WHERE layer = %s)",
            (view, version, serving_status.BATCH),
        )
        if unneeded.rowcount:
            empty_fallback(connection, catalogue.table_name(view, version))
    return bool(unneeded.rowcount)


def lock_fallback(connection: Connection, name: str) -> None:
    """Keep whoever answers too waiting until this transaction ends; readers go on."""
    connection.execute(sql.SQL("LOCK TABLE {} IN SHARE ROW EXCLUSIVE MODE").format(sql.Identifier("batch", name)))


def empty_fallback(connection: Connection, name: str) -> None:
    """By deleting: to truncate would keep readers waiting, and take the rows from those who read already."""
    connection.execute(sql.SQL("DELETE FROM {}").format(sql.Identifier("batch", name)))
