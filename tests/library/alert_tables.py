"""The tables of alerts as they are on a platform of which nothing is known yet."""

from collections.abc import Iterator
from contextlib import contextmanager

from truelog.database import Connection, connect
from truelog.settings import Settings

_TABLES = ("alert", "notification", "silence", "alert_source")


@contextmanager
def emptied(settings: Settings, *more: str) -> Iterator[Connection]:
    """They, and these others, hold nothing before and nothing afterwards."""
    truncate = f"TRUNCATE {', '.join(f'truelog.{table}' for table in (*_TABLES, *more))} CASCADE".encode()
    with connect(settings, autocommit=True) as connection:
        connection.execute(truncate)
        yield connection
        connection.execute(truncate)
