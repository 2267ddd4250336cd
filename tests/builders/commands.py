"""Decisions, and events of accepted commands."""

import uuid
from collections.abc import Mapping
from datetime import timedelta

from tests.builders.rows import insert
from truelog.storage.database import Connection


def accepted_ago(connection: Connection, ago: timedelta) -> None:
    """Let all accepted events be as old as this."""
    connection.execute("UPDATE truelog.command_event SET at = now() - %s", (ago,))


def an_unread_event(connection: Connection, event: str, value: bytes) -> None:
    """An event of an accepted command, which the reader of the log has not found in the log yet."""
    _an_event(connection, event, value, number=1_000_000)


def a_read_event(connection: Connection, event: str, number: int, partition: int, offset: int) -> None:
    """An event of an accepted command, which the reader of the log has found there."""
    _an_event(connection, event, b"{}", number=number, partition=partition, offset=offset)


def states_of(connection: Connection, event: str, positions: Mapping[int, int]) -> None:
    """The states of an event type's keys, made from the log up to these positions."""
    insert(connection, "command_fold", event=event, code="c", topic_id="an-id")
    for partition, offset in positions.items():
        insert(connection, "command_position", event=event, partition=partition, next_offset=offset)


def _an_event(connection: Connection, event: str, value: bytes, **more: int) -> None:
    receipt = uuid.uuid4()
    decision = {"command": "c", "key": "k", "sender": "s", "body_sha256": b"h", "status": 200, "answer": "{}"}
    insert(connection, "command", receipt=receipt, **decision)
    accepted = {"event_id": str(receipt), "event": event, "key": "k", "value": value}
    insert(connection, "command_event", receipt=receipt, **accepted, **more)


def forget_commands(connection: Connection) -> None:
    """Delete all decisions with their events."""
    connection.execute("TRUNCATE truelog.command_event, truelog.command")
