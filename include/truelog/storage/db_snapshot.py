"""Read-only database snapshots, in which all queries see the same state of a view."""

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from truelog.storage.database import Connection
from truelog.storage.kept_sessions import kept
from truelog.support.errors import ServiceDown
from truelog.support.settings import Settings


@contextmanager
def read_snapshot(settings: Settings) -> Iterator[Connection]:
    """Begin one read-only transaction, in which all queries see the same data.

    Raises:
        ServiceDown: PostgreSQL does not answer.
    """
    try:
        with kept(settings) as connection, connection.transaction():
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            connection.execute("SET LOCAL idle_in_transaction_session_timeout = '10min'")  # for slow readers
            yield connection
    except psycopg.OperationalError as error:
        raise ServiceDown(f"PostgreSQL did not answer: {error}; see `truelog status`.") from error


def view_columns(connection: Connection, view: str, schema: str = "views") -> list[dict[str, str | None]]:
    """The name, type and comment of each column that readers see. Empty if the view does not exist yet."""
    rows = connection.execute(
        "SELECT attname, format_type(atttypid, atttypmod), col_description(attrelid, attnum) FROM pg_attribute "
        "WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
        (f'{schema}."{view}"',),
    ).fetchall()
    return [{"name": name, "type": kind, "comment": comment} for name, kind, comment in rows]
