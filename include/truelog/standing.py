"""Standing: whether each view goes on with the log. A view that stands still says why, and is seen to stand."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from truelog.database import Connection

FOLLOWING, STANDING = "FOLLOWING", "STANDING"


@dataclass(frozen=True)
class Standing:
    """What its application said last of a view; `version` is None where its file cannot be read."""

    view: str
    application: str
    version: int | None
    state: str
    reason: str
    since: datetime


def begin(connection: Connection, application: str, versions: dict[str, int]) -> None:
    """The application runs these views and no others; each follows until it is said to stand still."""
    with connection.transaction():
        connection.execute("DELETE FROM truelog.standing WHERE application = %s", (application,))
        for view, version in versions.items():
            note(connection, application, view, version)


def note(connection: Connection, application: str, view: str, version: int | None, reason: str = "") -> None:
    """With a reason the view stands still, without one it follows."""
    connection.execute(
        "INSERT INTO truelog.standing AS s (view, application, version, state, reason) VALUES (%s, %s, %s, %s, %s) "
        "ON CONFLICT (view) DO UPDATE SET application = excluded.application, version = excluded.version, "
        "state = excluded.state, reason = excluded.reason, "
        "since = CASE WHEN s.state = excluded.state THEN s.since ELSE now() END",
        (view, application, version, STANDING if reason else FOLLOWING, reason),
    )


def every(connection: Connection) -> list[Standing]:
    """What is known of every view, by name."""
    rows: list[tuple[Any, ...]] = connection.execute(
        "SELECT view, application, version, state, reason, since FROM truelog.standing ORDER BY view"
    ).fetchall()
    return [Standing(*row) for row in rows]
