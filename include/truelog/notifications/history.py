"""What people read of notifications: the rules in force with their incidents, and the log of deliveries."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg.rows import dict_row

from truelog.notifications import rulebook, watched_view
from truelog.notifications.rules import declaration
from truelog.notifications.rules.row import ROW
from truelog.notifications.rules.rule import NotificationRule
from truelog.storage.database import Connection
from truelog.support import timestamps
from truelog.support.errors import BadInput

_COUNTS = """
    SELECT i.notification, count(*) FILTER (WHERE d.outcome = 'delivered'), count(*) FILTER (WHERE d.done_at IS NULL),
        count(*) FILTER (WHERE d.outcome IN ('refused', 'abandoned'))
    FROM truelog.notification_incident i JOIN truelog.notification_delivery d ON d.incident = i.id GROUP BY 1
"""
_DELIVERIES = """
    SELECT d.id::text, d.incident::text, i.notification, d.channel, d.says, i.body ->> 'text' AS text, d.made_at,
        d.tries, coalesce(d.outcome, 'waiting') AS outcome, d.failed, d.done_at
    FROM truelog.notification_delivery d JOIN truelog.notification_incident i ON i.id = d.incident
    WHERE (%(notification)s::text IS NULL OR i.notification = %(notification)s)
        AND (NOT %(waiting)s OR d.done_at IS NULL) AND (NOT %(lost)s OR d.outcome IN ('refused', 'abandoned'))
    ORDER BY d.number DESC LIMIT %(limit)s
"""


@dataclass(frozen=True)
class KnownNotification:
    """A rule in force, with the number of its notifications.

    trouble: why a row rule may be about no row: its view does not publish, or has no such column.
    """

    rule: NotificationRule
    delivered: int
    waiting: int
    failed: int
    trouble: str | None

    def as_dict(self) -> dict[str, Any]:
        return {
            "notification": self.rule.name,
            **_declared(self.rule),
            "group_by": list(self.rule.group_by),
            "delivered": self.delivered,
            "waiting": self.waiting,
            "failed": self.failed,
            "trouble": self.trouble,
        }


def known(connection: Connection) -> list[KnownNotification]:
    """The rules in force, by name."""
    counts = {name: numbers for name, *numbers in connection.execute(_COUNTS).fetchall()}
    found = list[KnownNotification]()
    for rule in rulebook.in_force(connection):
        delivered, waiting, failed = counts.get(rule.name, (0, 0, 0))
        found.append(KnownNotification(rule, delivered, waiting, failed, _trouble(connection, rule)))
    return found


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
    connection: Connection, notification: str | None, limit: int, *, waiting: bool = False, lost: bool = False
) -> list[dict[str, Any]]:
    """The latest notifications, the newest first, of one rule or of all. Lost ones never arrived and never will."""
    given = {"notification": notification, "limit": limit, "waiting": waiting, "lost": lost}
    with connection.cursor(row_factory=dict_row) as cursor:
        found = cursor.execute(_DELIVERIES, given).fetchall()
    return [
        {name: timestamps.to_text(value) if isinstance(value, datetime) else value for name, value in row.items()}
        for row in found
    ]


def _trouble(connection: Connection, rule: NotificationRule) -> str | None:
    """What is wrong with a row rule now. A rule that an application has sent was not compared with its view."""
    if rule.kind != ROW:
        return None
    try:
        declaration.check(_declared(rule), rule.name, watched_view.columns(connection, rule.view))
    except BadInput as error:
        return str(error)
    return None


def _declared(rule: NotificationRule) -> dict[str, Any]:
    return {
        "kind": rule.kind,
        "subject": rule.subject,
        "channel": rule.channel,
        "group_by": ",".join(rule.group_by),
        "template": rule.template,
        **rule.options,
    }
