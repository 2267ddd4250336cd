"""Delivers waiting notifications, each at least once, and records every try.

If the notifier dies after a channel has accepted a notification and before this is recorded, it sends the notification
again with the same id. A retraction waits for the notification that it retracts. Otherwise, a notification that fails
waits alone: the pause before the next try doubles.
"""

import logging
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from truelog.erasure import hold
from truelog.notifications import channel as channels
from truelog.notifications.message import Message
from truelog.storage.database import Connection, connect, read_value, storable
from truelog.storage.locks import Locks
from truelog.support.errors import NoticeRefused, NotSetUp, ReceiverDown
from truelog.support.faults import reach
from truelog.support.settings import Settings

log = logging.getLogger("truelog.notifications")

_NEXT = """
    SELECT d.id, d.incident, d.says, i.body, i.opened_at, i.until, d.made_at, d.tries
    FROM truelog.notification_delivery d JOIN truelog.notification_incident i ON i.id = d.incident
    WHERE d.done_at IS NULL AND d.channel = %s AND d.next_at <= now() AND NOT EXISTS (
        SELECT FROM truelog.notification_delivery e
        WHERE e.incident = d.incident AND e.done_at IS NULL AND e.number < d.number
    ) ORDER BY d.next_at, d.number LIMIT 1
"""
_FAILED = """
    UPDATE truelog.notification_delivery SET tries = tries + 1, failed = %(failed)s,
        next_at = now() + make_interval(secs => least(%(longest)s, %(first)s * 2 ^ least(tries, 30))),
        done_at = CASE WHEN made_at < now() - make_interval(secs => %(give_up)s) THEN now() END,
        outcome = CASE WHEN made_at < now() - make_interval(secs => %(give_up)s) THEN 'abandoned' END
    WHERE id = %(id)s
"""
_WAITING = """
    WITH RECURSIVE waiting (channel) AS (
        SELECT min(channel) FROM truelog.notification_delivery WHERE done_at IS NULL
        UNION ALL
        SELECT (
            SELECT min(d.channel) FROM truelog.notification_delivery d WHERE d.done_at IS NULL AND d.channel > w.channel
        ) FROM waiting w WHERE w.channel IS NOT NULL
    ) SELECT channel FROM waiting WHERE channel IS NOT NULL
"""  # reads one entry of the index for each channel, however many notifications wait
_DONE = """
    UPDATE truelog.notification_delivery SET tries = tries + 1, outcome = %s, failed = %s, done_at = now() WHERE id = %s
"""


@contextmanager
def only_deliverer(settings: Settings, channel: str) -> Iterator[Connection | None]:
    """A session that alone delivers to the channel; None if another session does. Each statement is a transaction."""
    with connect(settings, autocommit=True) as connection:
        mine = read_value(connection, f"SELECT pg_try_advisory_lock({Locks.DELIVERY})", (f"channel {channel}",))
        yield connection if mine else None


def deliver_next(settings: Settings, connection: Connection, channel: str) -> bool:
    """Try to deliver the next notification of the channel. Return whether one was due.

    While views are held back after a restore, none is: what waited in the backup may name people who were forgotten.
    """
    found = connection.execute(_NEXT, (channel,)).fetchall()
    if not found or hold.held_versions(connection):
        return False
    message = replace(Message(*found[0]), names=settings.names)
    try:
        if (declared := settings.notification_channels.get(channel)) is None:
            raise NotSetUp(f"TRUELOG_NOTIFICATION_CHANNELS has no channel {channel}")
        channels.send(declared, message, settings.notification_answer_seconds)
    except NoticeRefused as refused:
        log.error("%s refused %s permanently: %s", channel, message.id, refused)
        connection.execute(_DONE, ("refused", storable(str(refused)), message.id))
    except (ReceiverDown, NotSetUp) as down:
        log.warning("%s did not accept %s: %s", channel, message.id, down)
        _record_failure(settings, connection, message, str(down))
    except Exception as error:  # a defect. Its text may quote an address, so only its type and its place are logged
        place = "".join(traceback.format_tb(error.__traceback__))
        log.error("%s: %s cannot be sent: %s\n%s", channel, message.id, type(error).__name__, place)
        _record_failure(settings, connection, message, f"a defect: {type(error).__name__}; see the notifier's log")
    else:
        reach("notifier.delivered")
        connection.execute(_DONE, ("delivered", None, message.id))
    return True


def _record_failure(settings: Settings, connection: Connection, message: Message, why: str) -> None:
    connection.execute(
        _FAILED,
        {
            "id": message.id,
            "failed": storable(why),
            "first": settings.notification_retry_seconds,
            "longest": settings.notification_longest_retry_seconds,
            "give_up": settings.notification_give_up_seconds,
        },
    )


def waiting_channels(connection: Connection) -> set[str]:
    """The channels with notifications that wait. The settings may no longer have them."""
    return {str(channel) for (channel,) in connection.execute(_WAITING).fetchall()}
