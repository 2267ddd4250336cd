"""Alerts, and the looks of their sources."""

from datetime import timedelta

from tests.builders.rows import NO_TIME, before_now, insert
from truelog.storage.database import Connection


def an_alert(
    connection: Connection,
    kind: str,
    subject: str,
    cause: str = "",
    *,
    ago: timedelta = NO_TIME,
    told: bool = False,
    acknowledged_by: str | None = None,
    resolved: timedelta | None = None,
) -> None:
    """An alert that was found and opened some time ago. Whoever acknowledged it did so at once."""
    found = before_now(ago)
    insert(
        connection,
        "alert",
        kind=kind,
        subject=subject,
        cause=cause,
        found_at=found,
        opened_at=found,
        told_at=found if told else None,
        acknowledged_at=found if acknowledged_by else None,
        acknowledged_by=acknowledged_by,
        resolved_at=None if resolved is None else before_now(resolved),
    )


def a_look(connection: Connection, source: str, *, ago: timedelta = NO_TIME, blind: str = "") -> None:
    """The last look of an alert source, and why it saw nothing."""
    insert(connection, "alert_source", source=source, looked_at=before_now(ago), blind=blind)
