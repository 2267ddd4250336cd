"""The migration of the kernel's own tables, SQL views and functions to the schema of this release.

`sql/` contains

- `schema.sql`: the present tables. A new database executes only this file, and then has all migrations.
- `migrations/`: each change of the tables since then, under a number. An older database executes the files that it
  lacks in the order of their numbers, each once, in a transaction of its own.
- `views.sql`: the SQL views, whose statements replace what exists. They are executed again after each change of this
  file, with the SQL functions that the caller gives. A migration that changes a column of an SQL view drops the view
  first.

A change of a table is therefore written twice, in `schema.sql` and as a migration. A test compares both ways.
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path

import psycopg
from psycopg import sql

from truelog.storage import locks
from truelog.storage.database import Connection, connect, read_value
from truelog.storage.locks import Locks
from truelog.support.errors import SchemaRefused
from truelog.support.settings import Settings

_SQL = Path(__file__).parent / "sql"


def migrate(settings: Settings, functions: Sequence[bytes]) -> None:
    """Give the database the schema of this release, with these SQL functions, which the SQL views may use.

    A second caller waits until the first one is done.

    Raises:
        SchemaRefused: the database is newer than this release, or too old for its migrations.
    """
    with connect(settings, autocommit=True) as connection:
        connection.execute(f"SELECT pg_advisory_lock({Locks.MIGRATION})")  # the end of the session releases it
        if _exists(connection, "truelog.view"):
            _apply_missing(connection)
        else:
            _create(connection)
        _repeat(connection, functions)


def unlike(connection: Connection) -> tuple[set[int], set[int]]:
    """The migrations of this release that the database lacks, and its migrations of a newer release."""
    known, applied = _migrations().keys(), _applied(connection)
    return known - applied, applied - known


def _create(connection: Connection) -> None:
    with connection.transaction():
        connection.execute((_SQL / "schema.sql").read_bytes())
        for number, file in _migrations().items():
            _record(connection, number, file)


def _apply_missing(connection: Connection) -> None:
    known, applied = _migrations(), _applied(connection)
    if newer := applied - known.keys():
        raise SchemaRefused(f"The database has migration {max(newer)} of a newer release. Install that release.")
    for number in sorted(known.keys() - applied):
        with connection.transaction():
            try:
                connection.execute(known[number].read_bytes())
            except psycopg.errors.RaiseException as error:
                raise SchemaRefused(str(error.diag.message_primary)) from error
            _record(connection, number, known[number])


def _repeat(connection: Connection, functions: Sequence[bytes]) -> None:
    """Replace the functions and SQL views if a file has changed.

    To redefine a view means to wait for all its readers, and later readers queue behind the redefinition.
    """
    repeatable = [*functions, *locks.functions(), (_SQL / "views.sql").read_bytes()]
    digest = hashlib.sha256(b"\n".join([(_SQL / "schema.sql").read_bytes(), *repeatable])).hexdigest()
    if read_value(connection, "SELECT obj_description(to_regnamespace('truelog'), 'pg_namespace')") == digest:
        return
    with connection.transaction():
        for each in repeatable:
            connection.execute(each)
        connection.execute(sql.SQL("COMMENT ON SCHEMA truelog IS {}").format(sql.Literal(digest)))


def _migrations() -> dict[int, Path]:
    return {int(file.name.partition("_")[0]): file for file in sorted((_SQL / "migrations").glob("*.sql"))}


def _applied(connection: Connection) -> set[int]:
    if not _exists(connection, "truelog.migration"):
        return set()
    return {number for (number,) in connection.execute("SELECT number FROM truelog.migration")}


def _record(connection: Connection, number: int, file: Path) -> None:
    connection.execute("INSERT INTO truelog.migration (number, name) VALUES (%s, %s)", (number, file.stem))


def _exists(connection: Connection, table: str) -> bool:
    return read_value(connection, "SELECT to_regclass(%s)", (table,)) is not None
