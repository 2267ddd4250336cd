"""View status: whether each view is up to date with the log or stalled, and why."""

from dataclasses import dataclass, replace
from datetime import datetime

from truelog.storage.database import Connection, storable

UP_TO_DATE, STALLED = "UP_TO_DATE", "STALLED"
STOPPED = "STOPPED"  # the view was up to date while its application was running
BATCH_ONLY = "BATCH_ONLY"  # no application runs the view


@dataclass(frozen=True)
class ViewStatus:
    """The last status that an application reported for a view. The status is valid while the application is running.

    `version` is None if the view's file cannot be loaded.
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


def forget_others(connection: Connection, application: str, views: list[str]) -> None:
    """Record that an application no longer runs any other views than these."""
    connection.execute("DELETE FROM truelog.standing WHERE application = %s AND view <> ALL(%s)", (application, views))


def record_state(connection: Connection, application: str, view: str, version: int | None, reason: str = "") -> None:
    """Record that a view is stalled if there is a reason, or else that the view is up to date."""
    connection.execute(
        "INSERT INTO truelog.standing AS s (view, application, version, state, reason) VALUES (%s, %s, %s, %s, %s) "
        "ON CONFLICT (view) DO UPDATE SET application = excluded.application, version = excluded.version, "
        "state = excluded.state, reason = excluded.reason, "
        "since = CASE WHEN s.state = excluded.state THEN s.since ELSE now() END",
        (view, application, version, STALLED if reason else UP_TO_DATE, storable(reason)),
    )


def view_statuses(connection: Connection) -> list[ViewStatus]:
    """The status of every view that an application has reported, by name."""
    rows = connection.execute(
        "SELECT s.view, s.application, s.version, s.state, s.reason, s.since, coalesce(a.alive, false) "
        "FROM truelog.standing AS s LEFT JOIN truelog.application_status AS a USING (application) ORDER BY s.view"
    ).fetchall()
    return [_current(ViewStatus(*reported), alive) for *reported, alive in rows]


def _current(reported: ViewStatus, alive: bool) -> ViewStatus:
    if alive or reported.state == STALLED:
        return reported
    return replace(reported, state=STOPPED, reason="its application is not running")
