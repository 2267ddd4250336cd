"""Delivery: a receiver is told what waits for it, in order, one after the other.

It is told at least once: a process that dies between telling and noting so tells again, and the receiver knows the
incident by its key.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from truelog.alerts import alert_outbox
from truelog.alerts.alert_receiver import RECEIVERS
from truelog.storage.database import Connection, connect
from truelog.support.errors import NoticeRefused, ReceiverDown
from truelog.support.settings import Settings

log = logging.getLogger("truelog.alerts")


def deliver(settings: Settings, receiver: str) -> list[str]:
    """Tell all that waits; what was told.

    Raises:
        ReceiverDown: it did not take the first of what still waits.
    """
    told = []
    with _alone(settings, receiver) as connection:
        while notice := alert_outbox.next_notice(connection, receiver):
            what = f"{notice.key} {notice.says}"
            try:
                RECEIVERS[receiver].send(settings, notice)
            except NoticeRefused as refused:
                log.error("%s will not be told %s: %s", receiver, what, refused)
                alert_outbox.mark_delivered(connection, notice, str(refused))
            except ReceiverDown as down:
                alert_outbox.mark_failed(connection, notice, str(down))
                raise ReceiverDown(f"{receiver} was not told {what}: {down}") from down
            else:
                alert_outbox.mark_delivered(connection, notice)
                log.info("%s was told %s", receiver, what)
                told.append(what)
    return told


@contextmanager
def _alone(settings: Settings, receiver: str) -> Iterator[Connection]:
    """One at a time speaks with a receiver, and no transaction is open meanwhile."""
    with connect(settings, autocommit=True) as connection:
        connection.execute("SELECT pg_advisory_lock(hashtextextended('tell ' || %s, 0))", (receiver,))
        yield connection
