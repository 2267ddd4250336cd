"""SQL queries on the archive, run by DuckDB. Each event type is a table with every record that was ever archived.

A query opens only the tables that it refers to and reads only the columns and row groups that it needs. Iceberg lists
the files, Arrow reads them, and DuckDB queries the Arrow data. The query has no access to files, the network or this
process's variables. The tables also contain invalid records; the `invalid` column contains the reason.

Limits: one SELECT at a time, on this machine, within `_MEMORY` and a time limit. Each table shows its state when the
query opened it, so two tables in one query may be a few seconds apart. `offset` and `partition` are SQL keywords and
need quotes.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast
from urllib.parse import urlparse

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table import Table

from truelog.archive.schema import arrow_schema
from truelog.archive.table import identifier, open_catalog
from truelog.control import event_registry
from truelog.schema.event import EventType
from truelog.storage import exact_json
from truelog.support.errors import BadInput, QueryTooSlow
from truelog.support.settings import Settings

_MEMORY = "2GB"
_SECONDS = 300.0
_AGAIN = 0.1  # seconds until a late query is interrupted again, because an interrupt between two queries is lost
_CLOSED: dict[str, str | bool | int | float | list[str]] = {
    "python_enable_replacements": False,
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "memory_limit": _MEMORY,
}


@contextmanager
def run_query(settings: Settings, query: str, seconds: float = _SECONDS) -> Iterator[duckdb.DuckDBPyRelation]:
    """The result of a SELECT on the archive, which must be read before the time limit ends.

    Raises:
        BadInput: the query is not one valid SELECT; the message says where it fails.
        QueryTooSlow: the time limit ended.
    """
    with open_engine() as connection, open_catalog(settings) as catalog, interrupted_after(connection, seconds):
        try:
            statement = _require_select(connection, query)
            named = {name.lower() for name in connection.get_table_names(query)}
            for event_type in event_registry.event_types(settings).values():
                if event_type.name in named:
                    connection.register(event_type.name, open_dataset(catalog, event_type))
            yield _bind(connection, statement)
        except (duckdb.ProgrammingError, duckdb.DataError, duckdb.PermissionException) as wrong:
            raise BadInput(str(wrong)) from wrong


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
        raise QueryTooSlow(f"The query took longer than {seconds:g} s: read fewer records.") from late
    finally:
        done.set()
        watch.join()


@contextmanager
def open_engine() -> Iterator[duckdb.DuckDBPyConnection]:
    """A DuckDB connection that reads only registered tables, with no access to files, the network or this process."""
    with duckdb.connect(":memory:", config=_CLOSED) as connection:
        for statement in ("TimeZone = 'UTC'", "enable_external_access = false", "lock_configuration = true"):
            connection.execute(f"SET {statement}")
        yield connection


def open_dataset(catalog: Catalog, event_type: EventType, where: str = "true") -> ds.Dataset:
    """The files that may contain records of the event type that match `where`.

    A column is NULL in files that are older than the column.
    """
    schema = arrow_schema(event_type)
    try:
        table = catalog.load_table(identifier(event_type.name))
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


def _files(table: Table) -> pa.fs.FileSystem:
    location = urlparse(table.location())
    return cast(PyArrowFileIO, table.io).fs_by_scheme(location.scheme, location.netloc)


def _nullable(schema: pa.Schema) -> pa.Schema:
    return pa.schema([field.with_nullable(True) for field in schema])
