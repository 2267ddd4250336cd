"""Fallback policy: which views need a fallback, and whether the archive can improve what their readers see.

A view needs a fallback if its application is stopped, dead or hung and has processed no batch for a while, if the view
is stalled, or if the view's rows are known to be wrong. The view gets a fallback if the archive contains everything
that readers see and more, so that readers never go back in time, or if the rows that readers see are wrong. The
fallback is dropped once the stream has caught up with it. A batch-only view has no stream and needs no fallback.

The check runs every few minutes and rarely finds a view that needs a fallback, so the archive reader is imported only
on demand.
"""

import logging
from collections.abc import Sequence

from truelog.control import application
from truelog.control.view_tables import empty_answer, lock_answer, tables_of
from truelog.log.positions import Positions
from truelog.serving import status
from truelog.storage.database import Connection, connect
from truelog.support.errors import TopicRecreated
from truelog.support.settings import Settings
from truelog.views import catalogue

_DUE = """
    SELECT n.view, n.version, v.reads, f.files IS NOT DISTINCT FROM %(files)s
    FROM truelog.answer n JOIN truelog.view v USING (view, version)
    LEFT JOIN truelog.quarantine q USING (view, version)
    LEFT JOIN truelog.batch_answer a USING (view, version)
    LEFT JOIN LATERAL (
        SELECT application, state, since FROM truelog.standing s
        WHERE s.view = n.view AND (s.version = n.version OR s.declared)
        ORDER BY s.version IS NOT DISTINCT FROM n.version DESC LIMIT 1
    ) s ON true
    LEFT JOIN truelog.lease l ON l.application = s.application
    LEFT JOIN truelog.batch_refusal f ON f.view = n.view
    CROSS JOIN (SELECT now() - make_interval(secs => %(seconds)s) AS then) t
    WHERE n.view = ANY(%(known)s) AND NOT v.batch_only AND coalesce(a.made_at < t.then, true)
        AND (q.since < t.then OR (s.state = 'STALLED' AND s.since < t.then)
            OR coalesce(l.batch_at, l.taken_at) < t.then)
    ORDER BY n.view
"""
# A batch-only view stays refused until it is built, also while readers see a former version that a stream runs.
_FORGET_REFUSALS = """
    DELETE FROM truelog.batch_refusal
    WHERE view <> ALL(%s) AND view NOT IN (SELECT view FROM truelog.view WHERE batch_only AND removed_at IS NULL)
"""

log = logging.getLogger("truelog.fallback_policy")


def views_due(settings: Settings) -> list[str]:
    """Drop unneeded fallbacks and return the views that need a fallback and can get one."""
    known, files = catalogue.view_names(settings.views_folder), application.source_digest(settings)
    with connect(settings, autocommit=True) as connection:
        drop_unneeded_fallbacks(connection)
        parameters = {"known": known, "files": files, "seconds": settings.batch_answer_seconds}
        due = connection.execute(_DUE, parameters).fetchall()
        names = [view for view, *_ in due]
        connection.execute(_FORGET_REFUSALS, (names,))
        candidates = [(view, version, reads) for view, version, reads, refused in due if not refused]
        return [
            view
            for view, version, reads in candidates
            if _archive_improves(settings, connection, (view, version), reads)
        ]


def _archive_improves(settings: Settings, connection: Connection, view: tuple[str, int], reads: Sequence[str]) -> bool:
    from truelog.archive.table import archived_positions

    served = served_positions(connection, *view)
    archived = archived_positions(settings, {*reads, *served.offsets})
    try:
        return improves(archived, served, quarantined=is_quarantined(connection, *view))
    except TopicRecreated as error:
        log.warning("%s gets no fallback: %s", view[0], error)
        return False


def improves(archived: Positions, served: Positions, *, quarantined: bool) -> bool:
    """Whether readers at the `served` positions would benefit from a fallback at the archived positions.

    Raises:
        TopicRecreated: the archived and the served positions belong to different topics of the same name.
    """
    archived.require_same_topics(served)
    return bool(archived.offsets) and (quarantined or (archived.covers(served) and not served.covers(archived)))


def served_positions(connection: Connection, view: str, version: int) -> Positions:
    """The positions of the rows that readers of the view see."""
    query = (
        "SELECT topic, partition, next_offset, topic_id FROM truelog.served_position WHERE (view, version) = (%s, %s)"
    )
    return Positions.of_rows(connection.execute(query, (view, version)).fetchall())


def is_quarantined(connection: Connection, view: str, version: int) -> bool:
    """Whether readers see streamed rows that are known to be wrong."""
    found = connection.execute(
        "SELECT FROM truelog.quarantine q WHERE (view, version) = (%(view)s, %(version)s) AND NOT EXISTS "
        "(SELECT FROM truelog.batch_layer WHERE (view, version) = (%(view)s, %(version)s))",
        {"view": view, "version": version},
    )
    return found.fetchone() is not None


def is_known_wrong(connection: Connection, view: str, version: int) -> bool:
    """Whether the last comparison of the view's own rows has found them to be wrong."""
    found = connection.execute("SELECT FROM truelog.quarantine WHERE (view, version) = (%s, %s)", (view, version))
    return found.fetchone() is not None


def drop_unneeded_fallbacks(connection: Connection) -> list[str]:
    """Drop fallbacks that no reader gets, because the stream has caught up or readers see another version."""
    stored = connection.execute("SELECT view, version FROM truelog.batch_answer").fetchall()
    return [view for view, version in stored if _drop_unneeded(connection, view, version)]


def _drop_unneeded(connection: Connection, view: str, version: int) -> bool:
    with connection.transaction():
        tables = tables_of(connection, view, version)
        lock_answer(connection, tables)
        unneeded = connection.execute(
            "DELETE FROM truelog.batch_answer WHERE (view, version) = (%s, %s) AND (view, version) NOT IN "
            "(SELECT view, version FROM truelog.answer WHERE layer = %s)",
            (view, version, status.BATCH),
        )
        if unneeded.rowcount:
            empty_answer(connection, tables)
    return bool(unneeded.rowcount)
