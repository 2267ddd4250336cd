"""Connections to PostgreSQL, and the kernel's own tables and functions in it."""

from pathlib import Path

import psycopg
from psycopg import sql

from truelog.settings import Settings

Connection = psycopg.Connection[tuple[object, ...]]

_SQL = Path(__file__).parent / "sql"


def connect(settings: Settings, *, autocommit: bool = False) -> Connection:
    """A session in UTC; the caller closes it.

    A process that is suspended within a transaction loses it after a while, and with it the locks that others wait for.
    """
    connection: Connection = psycopg.connect(**settings.database(), autocommit=autocommit)
    with connection.transaction():
        connection.execute("SET SESSION idle_in_transaction_session_timeout = '15s'")
    return connection


def migrate(settings: Settings) -> None:
    """Bring the database to what this release expects; running it again changes nothing."""
    with connect(settings) as connection:
        connection.execute("SELECT pg_advisory_xact_lock(hashtext('truelog.migrate'))")
        for file in ("schema.sql", "measures.sql"):
            connection.execute((_SQL / file).read_bytes())


def names(columns: list[str] | dict[str, str], prefix: str = "") -> sql.Composed:
    """`"a", "b"`, or with a prefix `t."a", t."b"`."""
    quoted = (sql.SQL(prefix) + sql.Identifier(c) for c in columns)
    return sql.SQL(", ").join(quoted)
