"""The alert tables of a platform that has not recorded anything yet."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from truelog.control.application import ARCHIVE, STREAM
from truelog.storage.database import Connection, connect
from truelog.support.settings import Settings


def application_of(reader: str) -> str:
    """The application of a reader, as the default settings assign it."""
    return ARCHIVE if reader == ARCHIVE else STREAM


_TABLES = ("alert", "notification", "silence", "alert_source")


_MOMENTS = {
    "alert": ("found_at", "opened_at", "told_at", "gone_at", "resolved_at"),
    "notification": ("made_at", "done_at"),
    "silence": ("until",),
}


def age(database: Connection, by: timedelta = timedelta(hours=1)) -> None:
    """Move all recorded times back by this duration."""
    for table, moments in _MOMENTS.items():
        earlier = ", ".join(f"{moment} = {moment} - %(by)s" for moment in moments)
        database.execute(f"UPDATE truelog.{table} SET {earlier}".encode(), {"by": by})


@contextmanager
def emptied(settings: Settings, *more: str) -> Iterator[Connection]:
    """Empty the alert tables and the `more` tables before and after the block."""
    truncate = f"TRUNCATE {', '.join(f'truelog.{table}' for table in (*_TABLES, *more))} CASCADE".encode()
    with connect(settings, autocommit=True) as connection:
        connection.execute(truncate)
        yield connection
        connection.execute(truncate)
