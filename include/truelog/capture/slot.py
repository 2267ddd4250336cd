"""The replication slots of captured tables, and whether each capture goes on.

A slot keeps the database's log until Kafka has stored its changes. While a capture is stopped, the log grows and can
fill the disk of the captured database.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

import psycopg

from truelog.capture import epochs, worker
from truelog.capture.source_table import publication
from truelog.schema.event import EventType
from truelog.storage.database import connect
from truelog.support.errors import ServiceDown
from truelog.support.settings import Settings

_SLOTS = """
SELECT slot_name, wal_status, active, pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)::bigint,
    pg_wal_lsn_diff(pg_current_wal_lsn(), confirmed_flush_lsn)::bigint
FROM pg_replication_slots WHERE slot_name = ANY(%s) AND database = current_database()
"""


class Verdict(StrEnum):
    """OK; BEHIND: the database keeps much of its log; STOPPED: no change is captured; LOST: changes are missing."""

    OK = "OK"
    BEHIND = "BEHIND"
    STOPPED = "STOPPED"
    LOST = "LOST"


@dataclass(frozen=True)
class Slot:
    """A replication slot, in bytes of the database's log: what it retains, and what is not captured yet."""

    wal_status: str | None
    active: bool
    retained: int | None
    behind: int | None


@dataclass(frozen=True)
class Capture:
    """What is known about the capture of a table.

    `failure` says why the connector does not run, and `refused` why the table has no connector.
    """

    event_type: str
    slot: Slot | None = None
    failure: str | None = None
    refused: str | None = None


def verdict(capture: Capture, most_retained: int) -> tuple[Verdict, str]:
    """The verdict, and its reason with the way back.

    1. A table that was refused is not captured.
    2. A slot that the database has given up, or that is missing, has lost changes. Only a new snapshot gets them.
    3. A connector that does not run captures nothing.
    4. A slot that retains too much of the log may fill the disk.
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
    if (slot.retained or 0) > most_retained:  # 4
        return Verdict.BEHIND, f"the slot retains {(slot.retained or 0) / 1e6:,.0f} MB of the database's log"
    return Verdict.OK, ""


def captures(settings: Settings, types: Iterable[EventType]) -> list[Capture]:
    """What is known about the capture of each of these tables.

    Raises:
        ServiceDown: the captured database or the platform's own does not answer.
    """
    by_name = {each.name: publication(each) for each in types}
    try:
        with psycopg.connect(**settings.source(), autocommit=True, connect_timeout=5) as source:
            rows = source.execute(_SLOTS, (list(by_name.values()),)).fetchall()
        with connect(settings, autocommit=True) as connection:
            refused = epochs.refused(connection, by_name)
    except psycopg.OperationalError as error:
        raise ServiceDown(f"the captured database does not answer: {error}") from error
    slots = {name: Slot(*values) for name, *values in rows}
    return [
        Capture(name, slots.get(slot), None if name in refused else _failure(settings, name), refused.get(name))
        for name, slot in by_name.items()
    ]


def _failure(settings: Settings, name: str) -> str | None:
    try:
        return worker.failure(settings, name)
    except ServiceDown as down:
        return str(down)
