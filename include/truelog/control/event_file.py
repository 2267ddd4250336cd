"""Event files: the files in the events folder that cannot be used, with the reason and the time.

A broken file does not stop anything. The last registered version of its event type remains in force.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from psycopg.rows import class_row

from truelog.storage.database import Connection


@dataclass(frozen=True)
class BrokenFile:
    """An event type's file that cannot be used."""

    event: str
    reason: str
    since: datetime


def record_broken(connection: Connection, broken: Mapping[str, str]) -> None:
    """Record exactly these event types, each with the reason, as the event types with a file that cannot be used."""
    with connection.transaction(), connection.cursor() as cursor:
        cursor.execute("DELETE FROM truelog.event_file WHERE event <> ALL(%s)", (list(broken),))
        cursor.executemany(
            "INSERT INTO truelog.event_file (event, reason) VALUES (%s, %s) "
            "ON CONFLICT (event) DO UPDATE SET reason = excluded.reason",
            [(event, reason.replace("\0", " ")) for event, reason in broken.items()],
        )


def broken_files(connection: Connection) -> list[BrokenFile]:
    """Every event type whose file cannot be used, by name."""
    with connection.cursor(row_factory=class_row(BrokenFile)) as cursor:
        return cursor.execute("SELECT event, reason, since FROM truelog.event_file ORDER BY event").fetchall()
