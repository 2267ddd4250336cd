"""Decisions, and events of accepted commands."""

from datetime import timedelta

from truelog.storage.database import Connection


def accepted_ago(connection: Connection, ago: timedelta) -> None:
    """Let all accepted events be as old as this."""
    connection.execute("UPDATE truelog.command_event SET at = now() - %s", (ago,))


def forget_commands(connection: Connection) -> None:
    """Delete all decisions with their events."""
    connection.execute("TRUNCATE truelog.command_event, truelog.command")
