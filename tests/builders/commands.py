"""Decisions, and events of accepted commands."""

import uuid
from datetime import timedelta

from tests.builders.rows import insert
from truelog.storage.database import Connection


def accepted_ago(connection: Connection, ago: timedelta) -> None:
    """Let all accepted events be as old as this."""
    connection.execute("UPDATE truelog.command_event SET at = now() - %s", (ago,))


def an_unread_event(connection: Connection, event: str, value: bytes) -> None:
    """An event of an accepted command, which the reader of the log has not found in the log yet."""
    receipt = uuid.uuid4()
    decision = {"command": "c", "key": "k", "sender": "s", "body_sha256": b"h", "status": 200, "answer": "{}"}
    insert(connection, "command", receipt=receipt, **decision)
    accepted = {"number": 1_000_000, "event_id": str(receipt), "event": event, "key": "k", "value": value}
    insert(connection, "command_event", receipt=receipt, **accepted)


def forget_commands(connection: Connection) -> None:
    """Delete all decisions with their events."""
    connection.execute("TRUNCATE truelog.command_event, truelog.command")
