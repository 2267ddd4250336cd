"""What people read of notifications: the rules in force with their incidents, and the log of deliveries."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg.rows import dict_row

from truelog.notifications import rulebook
from truelog.notifications.rule import NotificationRule
from truelog.storage.database import Connection
from truelog.support import timestamps
from truelog.support.errors import BadInput

_COUNTS = """
    SELECT i.notification, count(*) FILTER (WHERE d.outcome = 'delivered'), count(*) FILTER (WHERE d.done_at IS NULL),
        count(*) FILTER (WHERE d.outcome IN ('refused', 'abandoned'))
    FROM truelog.notification_incident i JOIN truelog.notification_delivery d ON d.incident = i.id GROUP BY 1
"""
_DELIVERIES = """
    SELECT d.id::text, d.incident::text, i.notification, i.channel, d.says, i.body ->> 'text' AS text, d.made_at,
        d.tries, coalesce(d.outcome, 'waiting') AS outcome, d.failed, d.done_at
    FROM truelog.notification_delivery d JOIN truelog.notification_incident i ON i.id = d.incident
    WHERE (%(notification)s::text IS NULL OR i.notification = %(notification)s)
        AND (NOT %(waiting)s OR d.done_at IS NULL)
    ORDER BY d.number DESC LIMIT %(limit)s
"""


@dataclass(frozen=True)
class KnownNotification:
    """A rule in force, with the number of its notifications."""

    rule: NotificationRule
    delivered: int
    waiting: int
    failed: int

    def as_dict(self) -> dict[str, Any]:
        rule = self.rule
        return {
            "notification": rule.name,
            "kind": rule.kind,
            "subject": rule.subject,
            "channel": rule.channel,
            "group_by": list(rule.group_by),
            "window_seconds": rule.window_seconds,
            "template": rule.template,
            "delivered": self.delivered,
            "waiting": self.waiting,
            "failed": self.failed,
        }


def known(connection: Connection) -> list[KnownNotification]:
    """The rules in force, by name."""
    counts = {name: numbers for name, *numbers in connection.execute(_COUNTS).fetchall()}
    return [KnownNotification(rule, *counts.get(rule.name, (0, 0, 0))) for rule in rulebook.in_force(connection)]


def named(connection: Connection, name: str) -> KnownNotification:
    """The rule of this name.

    Raises:
        BadInput: no such rule is in force.
    """
    for each in known(connection):
        if each.rule.name == name:
            return each
    raise BadInput(f"no notification {name} is in force: see `truelog notifications list`")


def deliveries(
    connection: Connection, notification: str | None, limit: int, *, waiting: bool = False
) -> list[dict[str, Any]]:
    """The latest notifications, the newest first, of one rule or of all."""
    given = {"notification": notification, "limit": limit, "waiting": waiting}
    with connection.cursor(row_factory=dict_row) as cursor:
        found = cursor.execute(_DELIVERIES, given).fetchall()
    return [
        {name: timestamps.to_text(value) if isinstance(value, datetime) else value for name, value in row.items()}
        for row in found
    ]
