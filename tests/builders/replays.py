"""Replays that were not built to their end."""

from truelog.storage.database import Connection


def unbuild(connection: Connection, name: str) -> None:
    """Make a replay look as a maker that was killed has left it."""
    connection.execute("UPDATE truelog.view_replay SET built_at = NULL WHERE replay = %s", (name,))
