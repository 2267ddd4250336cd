"""Removed views: a view whose file is gone leaves. `truelog.answer` says so at once, and the relations go later.

A file may be gone for a moment, while an editor or a release replaces it. So its relations are dropped only after
`GRACE_SECONDS`. Without them, a reader gets an error instead of rows that nothing keeps up to date. The tables stay. If
the file comes back, the application shows them again.
"""

import logging

import psycopg

from truelog.storage.database import connect
from truelog.storage.kept_sessions import kept
from truelog.support.settings import Settings
from truelog.tables.shown import readable
from truelog.views import catalogue

GRACE_SECONDS = 60.0

# A view that an application runs is declared somewhere, whatever this process sees of its folder.
_MARK = """
UPDATE truelog.view SET removed_at = CASE WHEN declared.present THEN NULL ELSE now() END
FROM (
    SELECT d.view, d.view = ANY(%(files)s) OR EXISTS (
        SELECT FROM truelog.standing s JOIN truelog.application_status a USING (application)
        WHERE s.view = d.view AND a.alive
    ) AS present FROM truelog.deployed d
) AS declared
WHERE declared.view = view.view AND (removed_at IS NULL) <> declared.present
"""
_DUE = """
SELECT DISTINCT view FROM truelog.view
WHERE shown IS NOT NULL AND removed_at < now() - make_interval(secs => %s) ORDER BY view
"""
# An application that has loaded the file again meanwhile has removed the mark (`readable.describe`).
_HIDE = """
UPDATE truelog.view SET shown = NULL, pinned = NULL
WHERE view = %s AND removed_at < now() - make_interval(secs => %s)
"""

log = logging.getLogger("truelog.removed")


def settle(settings: Settings) -> list[str]:
    """Mark the views whose files are gone, and drop the relations of the views that have been gone for a minute.

    A folder without any view is rather a disk that is not mounted, so nothing changes then.
    """
    files = catalogue.view_names(settings.views_folder)
    if not files:
        return []
    with kept(settings) as connection, connection.transaction():
        connection.execute(_MARK, {"files": files})
        due = [view for (view,) in connection.execute(_DUE, (GRACE_SECONDS,))]
    return [view for view in due if _hide(settings, view)]


def _hide(settings: Settings, view: str) -> bool:
    """Drop what readers see of the view, or try again later if a reader holds it."""
    try:
        with connect(settings) as connection:
            connection.execute("SET LOCAL lock_timeout = '500ms'")
            hidden = connection.execute(_HIDE, (view, GRACE_SECONDS))
            readable.drop(connection, readable.relations_of(connection, view) if hidden.rowcount else ())
            if hidden.rowcount:
                readable.end_share(connection, view)
    except psycopg.errors.LockNotAvailable:
        return False
    if hidden.rowcount:
        log.warning("%s is removed: its file is gone, and readers no longer see it", view)
    return bool(hidden.rowcount)
