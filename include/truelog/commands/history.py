"""The decisions of the past, for people and for senders with a receipt."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, LiteralString

from psycopg.rows import dict_row

from truelog.commands.decision import ACCEPTED
from truelog.storage.database import Connection
from truelog.support import timestamps

_DECISIONS: LiteralString = (
    "SELECT c.receipt, c.at, c.command, c.key, c.sender, c.status, c.answer, c.said, coalesce((SELECT jsonb_agg("
    "jsonb_build_object('number', number, 'event_id', event_id, 'topic', event, 'partition', partition, 'offset', "
    "\"offset\") ORDER BY number) FROM truelog.command_event AS e WHERE e.receipt = c.receipt), '[]') AS events "
    "FROM truelog.command AS c "
)


@dataclass(frozen=True)
class Decided:
    """A decision, with the events of an accepted command and their places in the log."""

    receipt: uuid.UUID
    at: datetime
    command: str
    key: str
    sender: str
    status: int
    answer: Mapping[str, Any]
    said: str | None
    events: list[dict[str, Any]]

    @property
    def result(self) -> str:
        """What was decided, in words."""
        if self.status == ACCEPTED:
            return "accepted" if self.is_in_log else "accepted, not in the log yet"
        return str(self.answer.get("refused") or self.answer.get("conflict"))

    @property
    def is_in_log(self) -> bool:
        return bool(self.events) and all(each["offset"] is not None for each in self.events)

    def as_dict(self) -> dict[str, Any]:
        return {
            "receipt": str(self.receipt),
            "at": timestamps.to_text(self.at),
            "command": self.command,
            "key": self.key,
            "sender": self.sender,
            "status": self.status,
            "result": self.result,
            "version": self.answer["version"],
            "in_log": self.is_in_log,
            "events": self.events,
        }


def find(connection: Connection, receipt: uuid.UUID) -> Decided | None:
    """The decision with this receipt."""
    with connection.cursor(row_factory=dict_row) as cursor:
        row = cursor.execute(_DECISIONS + "WHERE c.receipt = %s", (receipt,)).fetchone()
    return None if row is None else Decided(**row)


def latest(connection: Connection, limit: int, *, command: str | None = None, key: str | None = None) -> list[Decided]:
    """The latest decisions, newest first: of one command, and of one key."""
    with connection.cursor(row_factory=dict_row) as cursor:
        rows = cursor.execute(
            _DECISIONS + "WHERE (%(command)s::text IS NULL OR c.command = %(command)s) "
            "AND (%(key)s::text IS NULL OR c.key = %(key)s) ORDER BY c.at DESC, c.receipt LIMIT %(limit)s",
            {"command": command, "key": key, "limit": limit},
        ).fetchall()
    return [Decided(**row) for row in rows]
