"""Delivers waiting notifications to a receiver, in order.

Each notification is delivered at least once. If a process dies after sending a notification but before recording the
delivery, the notification is sent again. The receiver recognises the incident by its key.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from truelog.alerts.receiver import send
from truelog.alerts.sources import outbox
from truelog.storage.database import Connection, connect
from truelog.storage.locks import Locks
from truelog.support.errors import NoticeRefused, ReceiverDown
from truelog.support.settings import Settings

log = logging.getLogger("truelog.alerts")


def deliver(settings: Settings, receiver: str) -> list[str]:
    """Deliver all waiting notifications, and return the labels of the delivered notifications.

    Raises:
        ReceiverDown: the receiver did not accept a notification. This and all later notifications are still waiting.
    """
    delivered = []
    with _exclusive(settings, receiver) as connection:
        while notice := outbox.next_notice(connection, receiver):
            label = f"{notice.key} {notice.transition}"
            try:
                send(settings, receiver, notice)
            except NoticeRefused as refused:
                log.error("%s refused %s permanently: %s", receiver, label, refused)
                outbox.mark_delivered(connection, notice, str(refused))
            except ReceiverDown as down:
                outbox.mark_failed(connection, notice, str(down))
                raise ReceiverDown(f"{receiver} did not accept {label}: {down}") from down
            else:
                outbox.mark_delivered(connection, notice)
                log.info("%s accepted %s", receiver, label)
                delivered.append(label)
    return delivered


@contextmanager
def _exclusive(settings: Settings, receiver: str) -> Iterator[Connection]:
    """A connection with a lock that blocks other deliveries to the receiver. Each statement is its own transaction."""
    with connect(settings, autocommit=True) as connection:
        connection.execute(f"SELECT pg_advisory_lock({Locks.DELIVERY})", (receiver,))
        yield connection
