"""Standing: whether each view goes on with the log. A view that stands still says why, and is seen to stand."""

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from truelog.storage.database import Connection

UP_TO_DATE, STALLED = "UP_TO_DATE", "STALLED"
STOPPED = "STOPPED"  # it followed, as long as its application ran


@dataclass(frozen=True)
class ViewStatus:
    """What its application said last of a view, which holds while it runs.

    `version` is None where the view's file cannot be read.
    """

    view: str
    application: str
    version: int | None
    state: str
    reason: str
    since: datetime


def begin_run(connection: Connection, application: str, versions: dict[str, int]) -> None:
    """The application runs these views and no others; each follows until it is said to stand still."""
    with connection.transaction():
        connection.execute("DELETE FROM truelog.standing WHERE application = %s", (application,))
        for view, version in versions.items():
            record_state(connection, application, view, version)


def record_state(connection: Connection, application: str, view: str, version: int | None, reason: str = "") -> None:
    """With a reason the view stands still, without one it follows."""
    connection.execute(
        "INSERT INTO truelog.standing AS s (view, application, version, state, reason) VALUES (%s, %s, %s, %s, %s) "
        "ON CONFLICT (view) DO UPDATE SET application = excluded.application, version = excluded.version, "
        "state = excluded.state, reason = excluded.reason, "
        "since = CASE WHEN s.state = excluded.state THEN s.since ELSE now() END",
        (view, application, version, STALLED if reason else UP_TO_DATE, reason),
    )


def view_statuses(connection: Connection) -> list[ViewStatus]:
    """What is known of every view, by name."""
    rows: list[tuple[Any, ...]] = connection.execute(
        "SELECT s.view, s.application, s.version, s.state, s.reason, s.since, coalesce(a.alive, false) "
        "FROM truelog.standing AS s LEFT JOIN truelog.application_status AS a USING (application) ORDER BY s.view"
    ).fetchall()
    return [_now(ViewStatus(*said), alive) for *said, alive in rows]


def _now(said: ViewStatus, alive: bool) -> ViewStatus:
    if alive or said.state == STALLED:
        return said
    return replace(said, state=STOPPED, reason="its application does not run")
