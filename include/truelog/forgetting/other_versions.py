"""The versions of views that no code can rebuild: an erasure drops them, with all that is stored about their views.

A version in use stays, and the erasure waits: readers or a share of them see it, its file declares it, or an
application runs it. A removed view, whose file is gone and which readers no longer see, is not in use.
"""

from collections.abc import Collection, Mapping

from truelog.erasure.erasure import Erasures
from truelog.forgetting import notification_copies, stored_texts
from truelog.maintenance.superseded import Version, drop_version
from truelog.storage.database import Connection, read_value
from truelog.support.errors import NotForgotten
from truelog.support.settings import Settings
from truelog.tables.shown import readable

_USE = """
    SELECT CASE
        WHEN v.removed_at IS NOT NULL AND v.shown IS NULL AND NOT EXISTS (
            SELECT FROM truelog.standing r JOIN truelog.application_status a USING (application)
            WHERE r.view = v.view AND a.alive
        ) THEN ''
        WHEN d.version = v.version THEN 'readers see it'
        WHEN EXISTS (
            SELECT FROM truelog.version_share h WHERE (h.view, h.version) = (v.view, v.version)
        ) THEN 'a share of the readers gets it'
        WHEN s.declared THEN 'its file declares it'
        WHEN s.view IS NOT NULL THEN 'an application runs it'
        ELSE ''
    END FROM truelog.view v JOIN truelog.deployed d ON d.view = v.view
    LEFT JOIN truelog.standing s ON (s.view, s.version) = (v.view, v.version)
    WHERE (v.view, v.version) = (%s, %s)
"""
_LEAVE = "UPDATE truelog.view SET deployed_at = NULL WHERE (view, version) = (%s, %s)"


def drop_others(
    settings: Settings,
    connection: Connection,
    erasures: Erasures,
    versions: Collection[tuple[str, int]],
    refused: Mapping[str, str],
) -> None:
    """Drop these versions. `refused` has the errors of the files that cannot be loaded.

    Raises:
        NotForgotten: a version is in use, or its file has an error.
    """
    for view, version in sorted(versions):
        use = refused.get(view) or _leave(connection, view, version)
        if not use:
            notification_copies.forget_notifications(connection, erasures, [view])
            stored_texts.forget_reports(settings, connection, [view])  # afterwards, nothing leads to them
            use = "" if drop_version(settings, connection, Version(view, version)) else "a query uses it"
        if use:
            raise NotForgotten(
                f"version {version} of {view} cannot be rebuilt, and was not dropped: {use}. "
                "Mend its file, or move its readers to another version. Then repeat the command."
            )


def _leave(connection: Connection, view: str, version: int) -> str:
    """How the version is used. If it is not, no reader can move to it from now on."""
    with connection.transaction():
        readable.lock(connection, view)  # readers may be moving to the version at this moment
        use = str(read_value(connection, _USE, (view, version)) or "")
        if not use:
            connection.execute(_LEAVE, (view, version))
    return use
