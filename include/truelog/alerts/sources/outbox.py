"""The alert outbox: notifications that are waiting for a receiver, in order.

A notification is written in the transaction that changes its alert, and then waits until its receiver accepts it. A
receiver that is down loses no notifications and delays no other receiver.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from psycopg.rows import class_row

from truelog.alerts.kind import KINDS, Kind
from truelog.alerts.rules import Transition
from truelog.storage.database import Connection

WAITING = "SELECT FROM truelog.notification WHERE receiver = %s AND done_at IS NULL LIMIT 1"


@dataclass(frozen=True)
class Notification:
    """One notification with its incident. `cause` is the alert's cause at the time the notification was written."""

    id: int
    transition: str
    kind: str
    subject: str
    cause: str
    opened_at: datetime
    resolved_at: datetime | None

    @property
    def key(self) -> str:
        return f"{self.kind}/{self.subject}"

    @property
    def resolved(self) -> bool:
        return self.transition == Transition.RESOLVED

    @property
    def definition(self) -> Kind:
        return KINDS[self.kind]

    @property
    def summary(self) -> str:
        meaning = self.definition.meaning.format(subject=self.subject)
        return f"resolved: {meaning}" if self.resolved else meaning


def enqueue(connection: Connection, receivers: Iterable[str], alert: int, transition: Transition, cause: str) -> None:
    """Write a notification for each receiver that needs one.

    1. A reminder is written only for receivers that have no waiting notification of this alert.
    2. A resolution is written only for receivers that have, or will get, an earlier notification of this alert.
    """
    connection.execute(
        "INSERT INTO truelog.notification (receiver, alert, says, cause) "
        "SELECT receiver, %(alert)s, %(transition)s, %(cause)s "
        "FROM unnest(%(receivers)s::text[]) AS receiver WHERE CASE %(transition)s "
        "WHEN 'again' THEN NOT EXISTS (SELECT FROM truelog.notification n "
        "WHERE n.alert = %(alert)s AND n.receiver = receiver.receiver AND done_at IS NULL) "  # 1
        "WHEN 'resolved' THEN EXISTS (SELECT FROM truelog.notification n "
        "WHERE n.alert = %(alert)s AND n.receiver = receiver.receiver) "  # 2
        "ELSE true END ORDER BY receiver",
        {"alert": alert, "transition": str(transition), "cause": cause, "receivers": list(receivers)},
    )


def next_notice(connection: Connection, receiver: str) -> Notification | None:
    """The oldest notification that is waiting for a receiver, or None."""
    with connection.cursor(row_factory=class_row(Notification)) as cursor:
        return cursor.execute(
            "SELECT n.id, n.says AS transition, a.kind, a.subject, n.cause, a.opened_at, a.resolved_at "
            "FROM truelog.notification n JOIN truelog.alert a ON a.id = n.alert "
            "WHERE receiver = %s AND done_at IS NULL ORDER BY n.id LIMIT 1",
            (receiver,),
        ).fetchone()


def mark_delivered(connection: Connection, notice: Notification, refused: str | None = None) -> None:
    """Record that the receiver accepted a notification or refused it permanently."""
    connection.execute(
        "UPDATE truelog.notification SET tries = tries + 1, done_at = now(), failed = %s WHERE id = %s",
        (refused, notice.id),
    )


def mark_failed(connection: Connection, notice: Notification, why: str) -> None:
    """Record a failed attempt. The notification remains in the outbox."""
    connection.execute("UPDATE truelog.notification SET tries = tries + 1, failed = %s WHERE id = %s", (why, notice.id))


def overdue(connection: Connection, receivers: Iterable[str], seconds: float) -> list[str]:
    """The receivers with a notification that has waited longer than `seconds`, each with the reason."""
    rows = connection.execute(
        "SELECT DISTINCT ON (receiver) receiver, coalesce(failed, 'not attempted') FROM truelog.notification "
        "WHERE receiver = ANY(%s) AND done_at IS NULL AND made_at < now() - make_interval(secs => %s) "
        "ORDER BY receiver, id",
        (list(receivers), seconds),
    )
    return [f"{receiver}: {why}" for receiver, why in rows.fetchall()]
