"""View status: whether each view is up to date with the log or stalled, and why."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import datetime

from truelog.storage.database import Connection, storable

UP_TO_DATE, STALLED = "UP_TO_DATE", "STALLED"
UNBUILT = "UNBUILT"  # a version that has no stream yet, because it is not built
STOPPED = "STOPPED"  # the view was up to date while its application was running
BATCH_ONLY = "BATCH_ONLY"  # no application runs the view
STARTING = "STARTING"  # no application has run the view yet, and it has no table


def unreported(version: int | None) -> tuple[str, str]:
    """The state of a view that no application has reported, and the reason; `version` is that of its table."""
    return STARTING if version is None else "UNKNOWN", "no application has run it yet"


@dataclass(frozen=True)
class ViewStatus:
    """The last status that an application reported for a view. The status is valid while the application is running.

    `version` is None if the view's file cannot be loaded. It may be a version that the file no longer declares, if that
    version is stalled while readers may still see it.
    """

    view: str
    application: str
    version: int | None
    state: str
    reason: str
    since: datetime


def begin_run(connection: Connection, application: str, versions: dict[str, int]) -> None:
    """Record that an application runs exactly these views. Each view is up to date until it is reported as stalled."""
    with connection.transaction():
        connection.execute("DELETE FROM truelog.standing WHERE application = %s", (application,))
        for view, version in versions.items():
            record_state(connection, application, view, version)


def forget_others(connection: Connection, application: str, versions: Collection[tuple[str, int | None]]) -> None:
    """Record that an application no longer runs any other versions of views than these."""
    views, numbers = [view for view, _ in versions], [version for _, version in versions]
    connection.execute(
        "DELETE FROM truelog.standing AS s WHERE application = %s AND NOT EXISTS ("
        "SELECT FROM unnest(%s::text[], %s::integer[]) AS kept(view, version) "
        "WHERE kept.view = s.view AND kept.version IS NOT DISTINCT FROM s.version)",
        (application, views, numbers),
    )


def declare(connection: Connection, application: str, versions: Collection[tuple[str, int | None]]) -> None:
    """Record which of the versions that an application runs are declared by files."""
    views, numbers = [view for view, _ in versions], [version for _, version in versions]
    with connection.transaction():
        for is_declared in (False, True):  # the index allows one declared version of a view
            connection.execute(
                "UPDATE truelog.standing AS s SET declared = %(now)s "
                "WHERE application = %(application)s AND declared <> %(now)s AND %(now)s = EXISTS ("
                "SELECT FROM unnest(%(views)s::text[], %(versions)s::integer[]) AS d(view, version) "
                "WHERE d.view = s.view AND d.version IS NOT DISTINCT FROM s.version)",
                {"now": is_declared, "application": application, "views": views, "versions": numbers},
            )


def record_state(connection: Connection, application: str, view: str, version: int | None, reason: str = "") -> None:
    """Record that the declared version of a view is stalled if there is a reason, or else that it is up to date."""
    _record(connection, (view, application, version, STALLED if reason else UP_TO_DATE, storable(reason), True))


def record_beside(connection: Connection, application: str, view: str, version: int | None, reason: str = "") -> None:
    """Like `record_state`, of a version that runs beside the declared version."""
    _record(connection, (view, application, version, STALLED if reason else UP_TO_DATE, storable(reason), False))


def report(connection: Connection, application: str, view: str, version: int, reason: str = "") -> None:
    """Record that a version that the application runs is stalled if there is a reason, or else that it is up to date.

    The application has recorded which versions it runs. If it runs this one no longer, nothing is recorded, so a worker
    that ends late removes no other version.
    """
    state = STALLED if reason else UP_TO_DATE
    connection.execute(
        "UPDATE truelog.standing SET state = %s, reason = %s, since = CASE state WHEN %s THEN since ELSE now() END "
        "WHERE (application, view, version) = (%s, %s, %s)",
        (state, storable(reason), state, application, view, version),
    )


def record_unbuilt(connection: Connection, application: str, view: str, version: int) -> None:
    """Record that the declared version of a view waits until it is built."""
    _record(connection, (view, application, version, UNBUILT, "", True))


def _record(connection: Connection, row: tuple[str, str, int | None, str, str, bool]) -> None:
    """The file declares at most one version of a view, so another declared version leaves."""
    view, _, version, *_, declared = row
    with connection.transaction():
        if declared:
            connection.execute(
                "DELETE FROM truelog.standing WHERE view = %s AND declared AND version IS DISTINCT FROM %s",
                (view, version),
            )
        connection.execute(
            "INSERT INTO truelog.standing AS s (view, application, version, state, reason, declared) "
            "VALUES (%s, %s, %s, %s, %s, %s) "
            "ON CONFLICT (view, version) DO UPDATE SET application = excluded.application, "
            "state = excluded.state, reason = excluded.reason, declared = excluded.declared, "
            "since = CASE WHEN s.state = excluded.state THEN s.since ELSE now() END",
            row,
        )


def view_statuses(connection: Connection) -> list[ViewStatus]:
    """The status of every view that an application has reported, by name.

    It is that of the declared version, or of a version that runs beside it and is stalled.
    """
    rows = connection.execute(
        "SELECT DISTINCT ON (s.view) s.view, s.application, s.version, s.state, s.reason, s.since, "
        "coalesce(a.alive, false) FROM truelog.standing AS s LEFT JOIN truelog.application_status AS a "
        "USING (application) WHERE s.state <> %s ORDER BY s.view, s.state = %s DESC, s.declared DESC",
        (UNBUILT, STALLED),
    ).fetchall()
    return [_current(ViewStatus(*reported), alive) for *reported, alive in rows]


def _current(reported: ViewStatus, alive: bool) -> ViewStatus:
    if alive or reported.state == STALLED:
        return reported
    return replace(reported, state=STOPPED, reason="its application is not running")
