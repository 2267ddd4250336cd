"""The archive for analysts: SQL by DuckDB, over tables named like the event types, each holding every record for ever.

Only the tables that a query names are opened, and of those only the columns and row groups that it needs are read:
Iceberg tells the files, Arrow reads them, DuckDB asks Arrow. The query itself reaches nothing else: no file, no
network, no variable of this process. Records that are no such event are there too, with `invalid` saying why.

Limits: one SELECT at a time, on this machine, within `_MEMORY`; a table is as of the moment it was opened, and two
tables of one query may be some seconds apart; `offset` and `partition` are SQL's own words, to be quoted.
"""

import json
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

from truelog.archive.archive_table import arrow_schema, identifier, open_catalog
from truelog.schema.event import EventType, load_events
from truelog.support.errors import BadInput
from truelog.support.settings import Settings

_MEMORY = "2GB"
_CLOSED: dict[str, str | bool | int | float | list[str]] = {
    "python_enable_replacements": False,
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "memory_limit": _MEMORY,
}


@contextmanager
def run_query(settings: Settings, query: str) -> Iterator[duckdb.DuckDBPyRelation]:
    """The rows that a SELECT over the archive gives.

    Raises:
        BadInput: the query is wrong, or is none; the message says where.
    """
    with open_engine() as connection, open_catalog(settings) as catalog:
        try:
            _require_select(connection, query)
            named = {name.lower() for name in connection.get_table_names(query)}
            for event_type in load_events().values():
                if event_type.name in named:
                    connection.register(event_type.name, archived(catalog, event_type))
            yield connection.sql(query).project("*")  # columns of one name are told apart
        except (duckdb.ProgrammingError, duckdb.DataError, duckdb.PermissionException) as wrong:
            raise BadInput(str(wrong)) from wrong


@contextmanager
def open_engine() -> Iterator[duckdb.DuckDBPyConnection]:
    """It reaches nothing but what it is given."""
    with duckdb.connect(":memory:", config=_CLOSED) as connection:
        for statement in ("TimeZone = 'UTC'", "enable_external_access = false", "lock_configuration = true"):
            connection.execute(f"SET {statement}")
        yield connection


def archived(catalog: Catalog, event_type: EventType, where: str = "true") -> ds.Dataset:
    """An event type's records, of files that may hold what is wanted; a column that a file is older than is NULL."""
    schema = arrow_schema(event_type)
    try:
        table = catalog.load_table(identifier(event_type.name))
    except NoSuchTableError:
        return ds.dataset(schema.empty_table())
    tasks = list(table.scan(where).plan_files())
    if any(task.delete_files for task in tasks):
        raise NotImplementedError(f"{event_type.name}: the archive rewrites files and never marks rows as deleted")
    paths = [_path(task.file.file_path) for task in tasks]
    return ds.dataset(paths, schema=_nullable(schema), format="parquet", filesystem=_files(table))


def as_dicts(rows: duckdb.DuckDBPyRelation) -> list[dict[str, Any]]:
    """Each row as JSON has it: times as text, bytes as text with escapes, numbers beyond JSON as text."""
    # `_row` may not be the name of a column, or that column alone would be shown.
    as_json = cast(duckdb.DuckDBPyRelation, rows.query("_row", "SELECT to_json(_row)::VARCHAR FROM _row"))
    return [json.loads(text, parse_constant=str) for (text,) in as_json.fetchall()]


def _require_select(connection: duckdb.DuckDBPyConnection, query: str) -> None:
    kinds = [statement.type for statement in connection.extract_statements(query)]
    if kinds != [duckdb.StatementType.SELECT]:
        raise BadInput("The archive is only read: ask one SELECT at a time.")


def _path(address: str) -> str:
    """`s3://bucket/key` as the file system knows it."""
    return address.partition("://")[2]


def _files(table: Table) -> pa.fs.FileSystem:
    place = urlparse(table.location())
    return cast(PyArrowFileIO, table.io).fs_by_scheme(place.scheme, place.netloc)


def _nullable(schema: pa.Schema) -> pa.Schema:
    return pa.schema([field.with_nullable(True) for field in schema])
