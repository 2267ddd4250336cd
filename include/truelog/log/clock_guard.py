"""Holds the clock of the log after a jump, until an operator confirms the jump or the machine's clock is right again.

The clock of the log is the time of a tick and never goes back, so a tick from a wrong machine clock could not be taken
back: it would expire rows and end log days. The tick service therefore writes no tick that is more than a day past the
newest tick. It goes on writing ticks with the newest tick's time. Streams go on, but no row expires and no log day
closes. The ticks in the log remain the only source of the clock, so streams and rebuilds agree.
"""

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

import psycopg
from psycopg.rows import class_row
from pydantic import ValidationError

from truelog.log import topics
from truelog.log.kafka_reader import messages
from truelog.log.valid_tick import tick_ends
from truelog.schema.event import EventType
from truelog.storage import audit_trail
from truelog.storage.audit_trail import OperationKind
from truelog.storage.database import Connection, connect
from truelog.support.settings import Settings

LIMIT = timedelta(days=1)
_READ = 100  # newest records of the topic in which the newest tick is looked for
_MICROSECOND = timedelta(microseconds=1)

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class HeldClock:
    """A jump from the newest tick's time to the machine's time. `confirmed` is the machine's time when confirmed."""

    newest: datetime
    machine: datetime
    confirmed: datetime | None


class ClockGuard:
    """Chooses the time of each tick. `newest` is the time of the newest tick; None if the topic is empty."""

    def __init__(self, settings: Settings, newest: datetime | None) -> None:
        self._settings, self._newest = settings, newest
        self._held = True  # an earlier process may have left a hold behind

    def tick_time(self, now: datetime) -> datetime:
        """The time of the next tick: `now`, or the newest tick's time after a jump that is not confirmed."""
        if self._newest is not None and now - self._newest > LIMIT and not self._is_confirmed(self._newest, now):
            return self._newest
        if self._held:
            self._release()
        self._newest = max(now, self._newest or now)
        return now

    def _is_confirmed(self, newest: datetime, now: datetime) -> bool:
        if not self._held:
            log.error(
                "the clock jumped from %s to %s: the clock of the log waits for `truelog clock confirm`", newest, now
            )
        self._held = True
        try:
            with connect(self._settings, autocommit=True) as connection:
                hold = store_hold(connection, newest, now)
        except psycopg.Error as error:
            log.warning("the jump cannot be confirmed: %s", error)
            return False
        return hold.confirmed is not None and now - hold.confirmed <= LIMIT

    def _release(self) -> None:
        try:
            with connect(self._settings, autocommit=True) as connection:
                connection.execute("DELETE FROM truelog.clock_hold")
            self._held = False
        except psycopg.Error as error:
            log.warning("the end of the hold is not recorded: %s", error)


def store_hold(connection: Connection, newest: datetime, now: datetime) -> HeldClock:
    """Record that the clock is held, and return the hold with its confirmation."""
    with connection.cursor(row_factory=class_row(HeldClock)) as cursor:
        [hold] = cursor.execute(
            "INSERT INTO truelog.clock_hold (newest, machine) VALUES (%s, %s) ON CONFLICT (one) DO UPDATE "
            "SET newest = excluded.newest, machine = excluded.machine RETURNING newest, machine, confirmed",
            (newest, now),
        ).fetchall()
    return hold


def load_hold(connection: Connection) -> HeldClock | None:
    """The present hold; None if the clock is not held."""
    with connection.cursor(row_factory=class_row(HeldClock)) as cursor:
        return cursor.execute("SELECT newest, machine, confirmed FROM truelog.clock_hold").fetchone()


def confirm_jump(connection: Connection, doer: str) -> HeldClock | None:
    """Confirm that the machine's clock is right after a jump; None if the clock is not held."""
    hold = load_hold(connection)
    if hold is not None and hold.confirmed is None:
        connection.execute("UPDATE truelog.clock_hold SET confirmed = machine")
        about = f"from {hold.newest} to {hold.machine}"
        audit_trail.record_operation(connection, OperationKind.CLOCK, "clock", doer, about)
    return hold


def newest_tick(settings: Settings, event_type: EventType) -> datetime | None:
    """The latest time of the newest ticks in the log; None if there are none."""
    ends = topics.end_offsets(settings, [event_type.name])
    end = ends.at(event_type.name, 0)
    return max(_times(settings, event_type, max(0, end - _READ), end), default=None)


def _times(settings: Settings, event_type: EventType, begin: int, end: int) -> Iterable[datetime]:
    begin = max(begin, topics.earliest_offsets(settings, [event_type.name]).at(event_type.name, 0))
    for message in messages(settings, event_type.name, 0, begin, end):
        try:
            tick = event_type.model.model_validate_json(message.value() or b"")
        except ValidationError:
            continue
        epoch = datetime.fromtimestamp(0, tick.occurred_at.tzinfo)
        time = (tick.occurred_at - epoch) // _MICROSECOND
        if tick_ends(time, message.timestamp()[1] * 1_000, tick.model_dump()["ends"]) is not None:
            yield tick.occurred_at
