"""Connections to PostgreSQL, and the kernel's own tables and functions in it."""

import hashlib
from pathlib import Path

import psycopg
from psycopg import sql

from truelog.support.settings import Settings

Connection = psycopg.Connection[tuple[object, ...]]

_SQL = Path(__file__).parent / "sql"


def connect(settings: Settings, *, autocommit: bool = False, writer: str | None = None) -> Connection:
    """A session in UTC; the caller closes it. `writer` is the application whose lease its writes stand under.

    A process that is suspended within a transaction loses it after a while, and with it the locks that others wait for.
    """
    given = settings.database() | ({"application_name": session_name(writer)} if writer else {})
    connection: Connection = psycopg.connect(**given, autocommit=autocommit, connect_timeout=10)
    with connection.transaction():
        connection.execute("SET SESSION idle_in_transaction_session_timeout = '15s'")
    return connection


def session_name(writer: str) -> str:
    """How PostgreSQL knows the sessions of an application; names there are at most 63 bytes long."""
    return f"truelog:{hashlib.sha256(writer.encode()).hexdigest()[:32]}"


def migrate(settings: Settings) -> None:
    """Bring the database to what this release expects.

    One that has it already is left alone: to define a table or a view anew waits for everybody who reads it, and those
    who come meanwhile wait behind.
    """
    statements = [(_SQL / file).read_bytes() for file in ("schema.sql", "measures.sql", "layer.sql")]
    digest = hashlib.sha256(b"\n".join(statements)).hexdigest()
    with connect(settings) as connection:
        connection.execute("SELECT pg_advisory_xact_lock(hashtext('truelog.migrate'))")
        made_by = connection.execute("SELECT obj_description(to_regnamespace('truelog'), 'pg_namespace')").fetchone()
        if made_by == (digest,):
            return
        for each in statements:
            connection.execute(each)
        connection.execute(sql.SQL("COMMENT ON SCHEMA truelog IS {}").format(sql.Literal(digest)))


def names(columns: list[str] | dict[str, str], prefix: str = "") -> sql.Composed:
    """`"a", "b"`, or with a prefix `t."a", t."b"`."""
    quoted = (sql.SQL(prefix) + sql.Identifier(c) for c in columns)
    return sql.SQL(", ").join(quoted)


def definitions(columns: dict[str, str]) -> sql.Composed:
    """`"a" text, "b" bigint`, for a table to be made with."""
    return sql.SQL(", ").join(sql.SQL("{} {}").format(sql.Identifier(c), sql.SQL(t)) for c, t in columns.items())
