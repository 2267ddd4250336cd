"""Connections to PostgreSQL."""

import hashlib
from collections.abc import Iterable
from typing import Any, LiteralString

import psycopg
from psycopg import sql
from psycopg.abc import Params
from psycopg.rows import scalar_row
from psycopg.types.json import set_json_loads

from truelog.storage import exact_json
from truelog.support.setting_groups.postgresql import IDLE_TIMEOUT
from truelog.support.settings import Settings

Query = LiteralString | bytes | sql.SQL | sql.Composed
Connection = psycopg.Connection[tuple[Any, ...]]

_MESSAGE_LENGTH = 500  # characters


def connect(settings: Settings, *, autocommit: bool = False, writer: str | None = None) -> Connection:
    """Open a session in UTC. The caller closes it. `writer` is the application whose lease covers the session's writes.

    Numbers in the JSON that it reads keep their digits (`exact_json`).

    If a process is suspended during a transaction, the transaction ends after a timeout and releases its locks.
    """
    arguments = settings.database() | ({"application_name": session_name(writer)} if writer else {})
    arguments["options"] += f" {IDLE_TIMEOUT}"
    connection: Connection = psycopg.connect(**arguments, autocommit=autocommit, connect_timeout=10)
    set_json_loads(exact_json.read, connection)
    return connection


def allow_pauses(connection: Connection) -> None:
    """Let this transaction be idle for minutes while Spark works. A hung process must not keep its locks forever."""
    connection.execute("SET LOCAL idle_in_transaction_session_timeout = '5min'")


def read_value(connection: Connection, query: Query, parameters: Params | None = None) -> Any:
    """The value that a statement returns as one row of one column; None if it returns no row."""
    with connection.cursor(row_factory=scalar_row) as cursor:
        return cursor.execute(query, parameters).fetchone()


def storable(message: str, longest: int = _MESSAGE_LENGTH) -> str:
    """A message in the form that the database stores. An error may be long, or quote what PostgreSQL refuses."""
    return message[:longest].replace("\0", "\u2400").encode(errors="replace").decode()


def session_name(writer: str) -> str:
    """The name of an application's PostgreSQL sessions: a hash, because PostgreSQL limits the name to 63 bytes."""
    return f"truelog:{hashlib.sha256(writer.encode()).hexdigest()[:32]}"


def names(columns: Iterable[str], prefix: str = "") -> sql.Composed:
    """A list of quoted columns: `"a", "b"`, or with a prefix `t."a", t."b"`."""
    quoted = (sql.SQL(prefix) + sql.Identifier(c) for c in columns)
    return sql.SQL(", ").join(quoted)


def definitions(columns: dict[str, str]) -> sql.Composed:
    """The column definitions of CREATE TABLE: `"a" text, "b" bigint`."""
    return sql.SQL(", ").join(sql.SQL("{} {}").format(sql.Identifier(c), sql.SQL(t)) for c, t in columns.items())
