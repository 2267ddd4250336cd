"""The answers to accepted commands: with coordinates if the events are in the log, else with a receipt only.

Which of the two was said is stored once, so that the same request always gets the same answer.
"""

import json
import uuid
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from psycopg.rows import dict_row

from truelog.storage.database import Connection

READ = "truelog_command_read"  # the channel that says that accepted events were read in the log
LOG, RECEIPT = "log", "receipt"


class Coordinates(NamedTuple):
    """Where a record with this event id is in its topic."""

    event_id: str
    value: bytes
    partition: int
    offset: int


@dataclass(frozen=True)
class Said:
    """What is said about an accepted command, and where its events are."""

    said: str
    places: Mapping[str, Mapping[str, Any]]  # by event id


def store_coordinates(connection: Connection, event: str, records: Iterable[Coordinates]) -> set[str]:
    """Store where accepted events are in the log. A record is an accepted event if its bytes are the same.

    The commands whose events are all in the log are from now on answered with coordinates. Returns the ids of the
    accepted events among the records.
    """
    first = {each.event_id: each for each in reversed(list(records))}
    if not first:
        return set()
    found = connection.execute(
        'UPDATE truelog.command_event AS e SET partition = r.partition, "offset" = r."offset" '
        "FROM unnest(%s::text[], %s::bytea[], %s::integer[], %s::bigint[]) "
        'AS r (event_id, value, partition, "offset") '
        'WHERE e.event = %s AND e."offset" IS NULL AND (e.event_id, e.value) = (r.event_id, r.value) '
        "RETURNING receipt, e.event_id",
        (*map(list, zip(*first.values(), strict=True)), event),
    ).fetchall()
    if not found:
        return set()
    receipts = list({receipt for receipt, _ in found})
    # The reader of another fold may store where the other events of a command are. With this lock, the later one sees
    # that all of them are in the log.
    connection.execute("SELECT FROM truelog.command WHERE receipt = ANY(%s) ORDER BY receipt FOR UPDATE", (receipts,))
    connection.execute(
        "UPDATE truelog.command AS c SET said = %s WHERE receipt = ANY(%s) AND said IS NULL AND NOT EXISTS "
        '(SELECT FROM truelog.command_event AS e WHERE e.receipt = c.receipt AND e."offset" IS NULL)',
        (LOG, receipts),
    )
    connection.execute(f"NOTIFY {READ}")
    return {event_id for _, event_id in found}


def settle(connection: Connection, receipt: uuid.UUID) -> None:
    """From now on, say only the receipt, unless coordinates were said."""
    connection.execute("UPDATE truelog.command SET said = %s WHERE receipt = %s AND said IS NULL", (RECEIPT, receipt))


def read_said(connection: Connection, receipts: Collection[uuid.UUID]) -> dict[uuid.UUID, Said]:
    """What is said about each of these commands about which something is."""
    said = connection.execute(
        "SELECT receipt, said FROM truelog.command WHERE receipt = ANY(%s) AND said IS NOT NULL", (list(receipts),)
    ).fetchall()
    places: dict[uuid.UUID, dict[str, dict[str, Any]]] = {receipt: {} for receipt, _ in said}
    with connection.cursor(row_factory=dict_row) as cursor:
        cursor.execute(
            'SELECT receipt, event_id, event AS topic, partition, "offset" FROM truelog.command_event '
            "WHERE receipt = ANY(%s)",
            (list(places),),
        )
        for row in cursor:
            places[row.pop("receipt")][row.pop("event_id")] = row
    return {receipt: Said(each, places[receipt]) for receipt, each in said}


def rendered(answer: Mapping[str, Any], said: Said | None = None) -> bytes:
    """The bytes of an answer. They depend on nothing but the stored decision and on what was said."""
    if said is None:
        whole: Mapping[str, Any] = answer
    else:
        events = [each | (said.places[each["event_id"]] if said.said == LOG else {}) for each in answer["events"]]
        whole = {**answer, "acknowledged": said.said, "events": events}
    return json.dumps(whole, sort_keys=True).encode()
