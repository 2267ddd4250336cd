"""Readers: what a view's readers see, in one snapshot of the database that nobody writes through."""

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg import sql

from truelog.storage.database import Connection, connect
from truelog.support.errors import NotSetUp, ServiceDown
from truelog.support.settings import Settings

_PORTION = 2_000  # rows fetched at a time: a view may be larger than this process


@contextmanager
def read_snapshot(settings: Settings) -> Iterator[Connection]:
    """One read-only transaction: whatever is asked within it is of one moment.

    Raises:
        ServiceDown: PostgreSQL does not answer.
    """
    try:
        with connect(settings) as connection:
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            connection.execute("SET LOCAL idle_in_transaction_session_timeout = '10min'")  # somebody reads slowly
            yield connection
    except psycopg.OperationalError as failed:
        raise ServiceDown(f"PostgreSQL did not answer: {failed}; see `truelog status`.") from failed


def view_rows(connection: Connection, relation: str, limit: int | None = None) -> Iterator[str]:
    """The rows of a relation in the schema `views`, each a JSON object as text.

    Raises:
        NotSetUp: there is no such relation yet.
    """
    found = connection.execute("SELECT to_regclass(%s)", (f'views."{relation}"',)).fetchone()
    if found == (None,):
        raise NotSetUp(f"views.{relation} is not made yet: its stream makes it when it first runs.")
    query = sql.SQL("SELECT row_to_json(r)::text FROM {} r LIMIT {}")
    with connection.cursor("rows") as cursor:
        cursor.itersize = _PORTION
        cursor.execute(query.format(sql.Identifier("views", relation), sql.Literal(limit)))
        yield from (str(text) for (text,) in cursor)


def view_columns(connection: Connection, view: str) -> list[dict[str, str | None]]:
    """Name, type and comment of each column that readers see; none where the view is not made yet."""
    found = connection.execute(
        "SELECT attname, format_type(atttypid, atttypmod), col_description(attrelid, attnum) FROM pg_attribute "
        "WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
        (f'views."{view}"',),
    ).fetchall()
    return [{"name": str(n), "type": str(t), "comment": None if c is None else str(c)} for n, t, c in found]
