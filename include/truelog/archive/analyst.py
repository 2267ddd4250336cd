"""SQL queries on the archive and on views, run by DuckDB.

Each event type is a table with every record that was ever archived. `presented.VIEW` and `views.VIEW` are what readers
of PostgreSQL see at this moment. All such relations of a query are read in one snapshot, and the archive may be some
seconds behind them.

A query opens only the tables that it refers to and reads only the columns and row groups that it needs. Iceberg lists
the files, Arrow reads them, and DuckDB queries the Arrow data. The query has no access to files, the network or this
process's variables. The tables also contain invalid records; the `invalid` column contains the reason.

A query that names no event type loads neither pyiceberg nor the client of Kafka, which take longer than DuckDB.

Limits: one SELECT at a time, on this machine, within `_MEMORY` and a time limit. Each table shows its state when the
query opened it, so two tables in one query may be a few seconds apart. `offset` and `partition` are SQL keywords and
need quotes.
"""

import json
import re
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlparse

import adbc_driver_postgresql.dbapi as adbc
import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from psycopg import sql

from truelog.storage import exact_json
from truelog.storage.database import connect
from truelog.storage.db_snapshot import view_columns
from truelog.support.errors import BadInput, FilesDeleted, QueryTooSlow
from truelog.support.settings import Settings

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.io.pyarrow import PyArrowFileIO
    from pyiceberg.table import Table

    from truelog.schema.event import EventType

_MEMORY = "2GB"
_SECONDS = 300.0
_AGAIN = 0.1  # seconds until a late query is interrupted again, because an interrupt between two queries is lost
_MOST_ROWS = 2_000_000  # of a relation of a view: they are in memory
_OF_VIEWS = ("presented", "views")
_TYPES = {
    "bigint": "BIGINT",
    "boolean": "BOOLEAN",
    "bytea": "BLOB",
    "date": "DATE",
    "double precision": "DOUBLE",
    "integer": "INTEGER",
    "real": "REAL",
    "smallint": "SMALLINT",
    "text": "VARCHAR",
    "timestamp with time zone": "TIMESTAMPTZ",
}
_DIGITS = 38  # of DuckDB's longest number
_NUMERIC = re.compile(r"numeric(?:\((?P<digits>\d+),(?P<after>\d+)\))?")
_NUMBER = r"^-?(?P<whole>[0-9]+)(?:\.(?P<after>[0-9]+))?$"
_NO_FILE = re.compile(r"reading the stream registered as .* failed: IOError: Path does not exist")
_CANCELED = "57014"  # PostgreSQL's code for a statement that reached its time limit
_CLOSED: dict[str, str | bool | int | float | list[str]] = {
    "python_enable_replacements": False,
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "memory_limit": _MEMORY,
}


@contextmanager
def run_query(settings: Settings, query: str, seconds: float = _SECONDS) -> Iterator[duckdb.DuckDBPyRelation]:
    """The result of a SELECT on the archive and on views, which must be read before the time limit ends.

    Raises:
        BadInput: the query is not one valid SELECT; the message says where it fails.
        CatalogBehind: the database was restored from a backup. Run `truelog archive adopt` first.
        QueryTooSlow: the time limit ended.
        FilesDeleted: an erasure or upkeep deleted files while they were read.
    """
    began = time.monotonic()
    with open_engine() as connection, interrupted_after(connection, seconds):
        try:
            statement = _require_select(connection, query)
            named = _tables_of(connection, query)
            shown = sorted(name for name in named if name[0] in _OF_VIEWS and name[1:])
            # The schema may be in front, as in main.page_view.
            _register_events(connection, settings, {name[-1] for name in named.difference(shown)})
            _register_views(connection, settings, shown, began + seconds)
            with _files_exist():
                yield _bind(connection, statement)
        except (duckdb.ProgrammingError, duckdb.DataError, duckdb.PermissionException) as wrong:
            raise BadInput(str(wrong)) from wrong
        except adbc.Error as error:
            if error.sqlstate != _CANCELED:
                raise
            raise _too_slow(seconds) from error


@contextmanager
def interrupted_after(connection: duckdb.DuckDBPyConnection, seconds: float) -> Iterator[None]:
    """Interrupt all queries of the connection after a time. Raises QueryTooSlow if one was interrupted."""
    done = threading.Event()

    def interrupt() -> None:
        wait = seconds
        while not done.wait(wait):
            connection.interrupt()
            wait = _AGAIN

    watch = threading.Thread(target=interrupt, daemon=True)
    watch.start()
    try:
        yield
    except duckdb.InterruptException as late:
        raise _too_slow(seconds) from late
    finally:
        done.set()
        watch.join()


def _too_slow(seconds: float) -> QueryTooSlow:
    return QueryTooSlow(f"The query took longer than {seconds:g} s: read fewer records.")


@contextmanager
def open_engine() -> Iterator[duckdb.DuckDBPyConnection]:
    """A DuckDB connection that reads only registered tables, with no access to files, the network or this process.

    Raises:
        FilesDeleted: an erasure or upkeep deleted files while they were read.
    """
    with duckdb.connect(":memory:", config=_CLOSED) as connection:
        for statement in ("TimeZone = 'UTC'", "enable_external_access = false", "lock_configuration = true"):
            connection.execute(f"SET {statement}")
        with _files_exist():
            yield connection


@contextmanager
def _files_exist() -> Iterator[None]:
    try:
        yield
    except duckdb.Error as error:  # has only the text of Arrow's error
        if _NO_FILE.search(str(error)):
            raise FilesDeleted from error
        raise


def open_dataset(catalog: "Catalog", event_type: "EventType", where: str = "true") -> ds.Dataset:
    """The files that may contain records of the event type that match `where`.

    A column is NULL in files that are older than the column.

    Raises:
        CatalogBehind: the database was restored from a backup. Run `truelog archive adopt` first.
    """
    from pyiceberg.exceptions import NoSuchTableError

    from truelog.archive.catalog_pointer import load_newest
    from truelog.archive.schema import arrow_schema
    from truelog.archive.table import identifier

    schema = arrow_schema(event_type)
    try:
        table = load_newest(catalog, identifier(event_type.name), event_type.topic_id)
    except NoSuchTableError:
        return ds.dataset(schema.empty_table())
    tasks = list(table.scan(where).plan_files())
    if any(task.delete_files for task in tasks):
        raise NotImplementedError(f"{event_type.name}: the table has delete files, which the archive never writes")
    paths = [_path(task.file.file_path) for task in tasks]
    return ds.dataset(paths, schema=_nullable(schema), format="parquet", filesystem=_files(table))


def as_dicts(rows: duckdb.DuckDBPyRelation) -> list[dict[str, Any]]:
    """Each row as a dict of JSON types: times, bytes (escaped) and numbers beyond JSON's range become text."""
    # If a column were named `_row`, only that column would be returned.
    as_json = cast(duckdb.DuckDBPyRelation, rows.query("_row", "SELECT to_json(_row)::VARCHAR FROM _row"))
    return [exact_json.read(text) for (text,) in as_json.fetchall()]


def _require_select(connection: duckdb.DuckDBPyConnection, query: str) -> duckdb.Statement:
    query.encode()  # for invalid text, DuckDB would raise TypeError
    statements = connection.extract_statements(query)
    if [statement.type for statement in statements] != [duckdb.StatementType.SELECT]:
        raise BadInput("The archive is read-only: send one SELECT at a time.")
    return statements[0]


def _tables_of(connection: duckdb.DuckDBPyConnection, query: str) -> set[tuple[str, ...]]:
    """The tables that the query names, each with its schema if the query says it. They need not exist yet."""
    [(text,)] = connection.execute("SELECT json_serialize_sql(?::VARCHAR)", [query]).fetchall()
    found, waiting = set[tuple[str, ...]](), [json.loads(text)]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            if node.get("type") == "BASE_TABLE":
                found.add(tuple(part.lower() for part in node["qualified_name"]["path"]))
            waiting += node.values()
        elif isinstance(node, list):
            waiting += node
    return found


def _register_events(connection: duckdb.DuckDBPyConnection, settings: Settings, names: set[str]) -> None:
    """Let the query read the event types among these names."""
    if not names:
        return
    from truelog.archive.table import open_catalog
    from truelog.control import event_registry

    with open_catalog(settings) as catalog:
        for event_type in event_registry.event_types(settings).values():
            if event_type.name in names:
                connection.register(event_type.name, open_dataset(catalog, event_type))


def _register_views(
    connection: duckdb.DuckDBPyConnection, settings: Settings, names: Sequence[tuple[str, ...]], until: float
) -> None:
    """Let the query read these relations of views. One that PostgreSQL does not have is left out.

    PostgreSQL ends a statement that is not done at the time `until`, by the monotonic clock.
    """
    if not names:
        return
    for schema in sorted({schema for schema, *_ in names}):
        connection.execute(f'CREATE SCHEMA "{schema}"')
    with connect(settings, autocommit=True) as known:
        columns = {name: view_columns(known, name[1], name[0]) for name in names}
    with adbc.connect(settings.database_uri(), autocommit=True) as postgresql, postgresql.cursor() as cursor:
        cursor.execute("SET timezone = 'UTC'")
        cursor.execute("BEGIN TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        for name in (each for each in names if columns[each]):
            types = {str(each["name"]): str(each["type"]) for each in columns[name]}
            stored = f"_{'.'.join(name)}"
            left = max(1, round((until - time.monotonic()) * 1_000))
            cursor.execute(f"SET LOCAL statement_timeout = {left}")
            rows = _rows(cursor, name, types)
            connection.register(stored, rows)
            shown = (
                sql.SQL("CAST({name} AS {kind}) AS {name}").format(
                    name=sql.Identifier(column), kind=sql.SQL(_shown_as(kind, rows[column]))
                )
                for column, kind in types.items()
            )
            view = sql.SQL("CREATE VIEW {} AS SELECT {} FROM {}").format(
                sql.Identifier(*name), sql.SQL(", ").join(shown), sql.Identifier(stored)
            )
            connection.execute(view.as_string(None))


def _rows(cursor: adbc.Cursor, name: tuple[str, ...], types: Mapping[str, str]) -> pa.Table:
    """All rows of a relation of PostgreSQL.

    Raises:
        BadInput: they are too many.
    """
    selected = (
        sql.SQL("{name}::{kind} AS {name}").format(name=sql.Identifier(column), kind=sql.SQL(_read_as(kind)))
        for column, kind in types.items()
    )
    query = sql.SQL("SELECT {} FROM {} LIMIT {}").format(
        sql.SQL(", ").join(selected), sql.Identifier(*name), sql.Literal(_MOST_ROWS + 1)
    )
    cursor.execute(query.as_string(None))
    found = cursor.fetch_arrow_table()
    if found.num_rows > _MOST_ROWS:
        raise BadInput(f"{'.'.join(name)} has more than {_MOST_ROWS:,} rows: ask PostgreSQL, or the events.")
    return found


def _read_as(kind: str) -> str:
    """The type as which PostgreSQL sends a column. What Arrow does not have is text."""
    return kind if kind.removesuffix("[]") in _TYPES else "text"


def _shown_as(kind: str, values: pa.ChunkedArray) -> str:
    """The type as which the query sees the column."""
    if numeric := _NUMERIC.fullmatch(kind):
        is_declared = numeric["digits"] and int(numeric["digits"]) <= _DIGITS
        return f"DECIMAL({numeric['digits']}, {numeric['after']})" if is_declared else _with_all_digits(values)
    base = kind.removesuffix("[]")
    return _TYPES.get(base, "VARCHAR") + ("[]" if base in _TYPES and kind != base else "")


def _with_all_digits(numbers: pa.ChunkedArray) -> str:
    """The type of numbers, given as text, that keeps their digits. It is text if one is NaN, infinite or too long."""
    given = pc.drop_null(numbers)
    found = pc.drop_null(pc.extract_regex(given, _NUMBER))
    if len(found) < len(given):
        return "VARCHAR"
    whole, after = (pc.max(pc.utf8_length(pc.struct_field(found, [n]))).as_py() or 0 for n in range(2))
    return f"DECIMAL({_DIGITS}, {after})" if whole + after <= _DIGITS else "VARCHAR"


def _bind(connection: duckdb.DuckDBPyConnection, statement: duckdb.Statement) -> duckdb.DuckDBPyRelation:
    """The result of the statement, which DuckDB computes when it is read."""
    try:
        return connection.sql(statement).project("*")  # renames columns so that no two share a name
    except (duckdb.BinderException, duckdb.CatalogException):
        connection.execute(statement)  # fails in the same way, but its error contains the position in the query
        raise


def _path(address: str) -> str:
    """The path in `s3://bucket/key`, without the scheme, as the file system expects it."""
    return address.partition("://")[2]


def _files(table: "Table") -> pa.fs.FileSystem:
    location = urlparse(table.location())
    return cast("PyArrowFileIO", table.io).fs_by_scheme(location.scheme, location.netloc)


def _nullable(schema: pa.Schema) -> pa.Schema:
    return pa.schema([field.with_nullable(True) for field in schema])
