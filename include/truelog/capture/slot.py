"""The replication slots of captured tables, and whether each capture goes on.

A slot keeps the database's log until Kafka has stored its changes. While a capture is stopped, the log grows and can
fill the disk of the captured database.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum

import psycopg

from truelog.capture import epochs, worker
from truelog.capture.growth import hours_left, measure
from truelog.capture.source_table import problem, publication
from truelog.schema.event import EventType
from truelog.storage.database import Connection, connect
from truelog.support.errors import ServiceDown
from truelog.support.setting_groups.namespace import Names
from truelog.support.settings import Settings

_SLOTS = """
SELECT slot_name, wal_status, active, pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)::bigint,
    pg_wal_lsn_diff(pg_current_wal_lsn(), confirmed_flush_lsn)::bigint, safe_wal_size
FROM pg_replication_slots WHERE slot_name = ANY(%s) AND database = current_database()
"""


_SOON = 24  # hours


class Verdict(StrEnum):
    """OK; BEHIND: the database keeps much of its log; STOPPED: no change is captured; LOST: changes are missing."""

    OK = "OK"
    BEHIND = "BEHIND"
    STOPPED = "STOPPED"
    LOST = "LOST"


@dataclass(frozen=True)
class Slot:
    """A replication slot, in bytes of the database's log: what it retains, and what is not captured yet.

    `room` is how much the log may grow until the database gives the slot up; None without `max_slot_wal_keep_size`.
    """

    wal_status: str | None
    active: bool
    retained: int | None
    behind: int | None
    room: int | None = None


@dataclass(frozen=True)
class Capture:
    """What is known about the capture of a table.

    `failure` says why the connector does not run, and `refused` why the table has no connector. `growth` is how many
    bytes an hour the slot retains more; None if it is not known yet.
    """

    event_type: str
    slot: Slot | None = None
    failure: str | None = None
    refused: str | None = None
    growth: float | None = None


def verdict(capture: Capture, most_retained: int) -> tuple[Verdict, str]:
    """The verdict, and its reason with the way back.

    1. A table that was refused is not captured.
    2. A slot that the database has given up, or that is missing, has lost changes. Only a new snapshot gets them.
    3. A connector that does not run captures nothing.
    4. A slot that retains too much of the log may fill the disk.
    5. A slot that grows will be given up when it reaches the database's limit.
    """
    cure = f"`truelog capture snapshot {capture.event_type}` reads the table again"
    slot = capture.slot
    if capture.refused is not None:  # 1
        return Verdict.STOPPED, capture.refused
    if slot is not None and slot.wal_status in {"lost", "unreserved"}:  # 2
        return Verdict.LOST, f"the database has removed log that its slot needs: {cure}"
    if slot is None:
        return Verdict.LOST, f"the database has no replication slot for it: {cure}"
    if capture.failure is not None:  # 3
        return Verdict.STOPPED, f"{capture.failure}. If the slot was made again, changes are missing: {cure}"
    if full := _disk_problem(slot, capture.growth, most_retained):
        return Verdict.BEHIND, full
    return Verdict.OK, ""


def _disk_problem(slot: Slot, growth: float | None, most_retained: int) -> str | None:
    if (slot.retained or 0) > most_retained:  # 4
        return f"the slot retains {(slot.retained or 0) / 1e6:,.0f} MB of the database's log"
    hours = hours_left(slot.room, growth)
    if hours is not None and hours < _SOON:  # 5
        faster = f"{(growth or 0) / 1e6:,.0f} MB an hour"
        return f"the slot retains {faster} more, and the database gives it up in {hours:,.1f} hours"
    return None


def captures(settings: Settings, types: Iterable[EventType]) -> list[Capture]:
    """What is known about the capture of each of these tables.

    Raises:
        ServiceDown: the captured database or the platform's own does not answer.
    """
    by_name = {each.name: each for each in types}
    try:
        with psycopg.connect(**settings.source(), autocommit=True, connect_timeout=5) as source:
            slots = _slots(source, settings.names, by_name)
            # a table may change at any time
            problems = {name: problem(source, settings.names, each) for name, each in by_name.items()}
        with connect(settings, autocommit=True) as connection:
            refused = epochs.refused(connection, by_name) | {name: why for name, why in problems.items() if why}
            now = datetime.now(UTC)
            growths = {name: measure(connection, name, each.retained or 0, now) for name, each in slots.items()}
    except psycopg.OperationalError as error:
        raise ServiceDown(f"the captured database does not answer: {error}") from error
    return [
        Capture(
            name,
            slots.get(name),
            None if name in refused else _failure(settings, name),
            refused.get(name),
            growths.get(name),
        )
        for name in by_name
    ]


def _slots(source: Connection, own: Names, types: Mapping[str, EventType]) -> dict[str, Slot]:
    """The replication slot of each table that has one."""
    names = {publication(own, each): name for name, each in types.items()}
    return {names[slot]: Slot(*values) for slot, *values in source.execute(_SLOTS, (list(names),)).fetchall()}


def _failure(settings: Settings, name: str) -> str | None:
    try:
        return worker.failure(settings, settings.names.in_kafka(name))
    except ServiceDown as down:
        return str(down)
