"""The outbox of alerts: what each receiver is still to be told, in order, until it has taken it.

A notification is written with the change that it tells of, in one transaction, and is done when its receiver took it:
a receiver that is down loses nothing, and holds up no other.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from psycopg.rows import class_row

from truelog.alerts.alert import Transition
from truelog.alerts.alert_kind import KINDS, Kind
from truelog.storage.database import Connection

WAITING = "SELECT FROM truelog.notification WHERE receiver = %s AND done_at IS NULL LIMIT 1"


@dataclass(frozen=True)
class Notice:
    """One notification, with what is to be said of its incident."""

    id: int
    says: str
    kind: str
    subject: str
    cause: str
    opened_at: datetime
    resolved_at: datetime | None
    opened_as: str | None

    @property
    def key(self) -> str:
        return f"{self.kind}/{self.subject}"

    @property
    def receivers_kind(self) -> str:
        """Kind by which receivers know the incident: the name that it had when they were first notified."""
        return self.opened_as or self.kind

    @property
    def receivers_key(self) -> str:
        return f"{self.receivers_kind}/{self.subject}"

    @property
    def resolved(self) -> bool:
        return self.says == Transition.RESOLVED

    @property
    def means(self) -> Kind:
        return KINDS[self.kind]

    @property
    def summary(self) -> str:
        said = self.means.means.format(subject=self.subject)
        return f"resolved: {said}" if self.resolved else said


def enqueue(connection: Connection, receivers: Iterable[str], alert: int, says: Transition, cause: str) -> None:
    """Have these receivers told.

    1. Of an alert that is told again: only those who have been told all that went before.
    2. Of one that is resolved: only those who were told, or will be, that it was open.
    """
    connection.execute(
        "INSERT INTO truelog.notification (receiver, alert, says, cause) "
        "SELECT receiver, %(alert)s, %(says)s, %(cause)s "
        "FROM unnest(%(receivers)s::text[]) AS receiver WHERE CASE %(says)s "
        "WHEN 'again' THEN NOT EXISTS (SELECT FROM truelog.notification n "
        "WHERE n.alert = %(alert)s AND n.receiver = receiver.receiver AND done_at IS NULL) "  # 1
        "WHEN 'resolved' THEN EXISTS (SELECT FROM truelog.notification n "
        "WHERE n.alert = %(alert)s AND n.receiver = receiver.receiver) "  # 2
        "ELSE true END ORDER BY receiver",
        {"alert": alert, "says": str(says), "cause": cause, "receivers": list(receivers)},
    )


def next_notice(connection: Connection, receiver: str) -> Notice | None:
    """What it is to be told next."""
    with connection.cursor(row_factory=class_row(Notice)) as cursor:
        return cursor.execute(
            "SELECT n.id, n.says, a.kind, a.subject, n.cause, a.opened_at, a.resolved_at, a.opened_as "
            "FROM truelog.notification n "
            "JOIN truelog.alert a ON a.id = n.alert WHERE receiver = %s AND done_at IS NULL ORDER BY n.id LIMIT 1",
            (receiver,),
        ).fetchone()


def mark_delivered(connection: Connection, notice: Notice, refused: str | None = None) -> None:
    """The receiver took it, or refused it for good."""
    connection.execute(
        "UPDATE truelog.notification SET tries = tries + 1, done_at = now(), failed = %s WHERE id = %s",
        (refused, notice.id),
    )


def mark_failed(connection: Connection, notice: Notice, why: str) -> None:
    """It is to be tried again."""
    connection.execute("UPDATE truelog.notification SET tries = tries + 1, failed = %s WHERE id = %s", (why, notice.id))


def count_overdue(connection: Connection, receivers: Iterable[str], seconds: float) -> list[str]:
    """For whom something waits longer than that, and why."""
    rows = connection.execute(
        "SELECT DISTINCT ON (receiver) receiver, coalesce(failed, 'it was not tried') FROM truelog.notification "
        "WHERE receiver = ANY(%s) AND done_at IS NULL AND made_at < now() - make_interval(secs => %s) "
        "ORDER BY receiver, id",
        (list(receivers), seconds),
    )
    return [f"{receiver}: {why}" for receiver, why in rows.fetchall()]
