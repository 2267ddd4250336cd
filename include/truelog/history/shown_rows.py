"""Rows as readers see them, for states that are in no table of the database."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import adbc_driver_postgresql.dbapi as adbc
import pyarrow as pa
from psycopg import sql

from truelog.storage import exact_json
from truelog.storage.database import Connection, definitions
from truelog.support.settings import Settings
from truelog.tables.table import Table
from truelog.tables.tracing.event_steps import STEP

_SCRATCH = "steps"


@dataclass(frozen=True)
class ShownRow:
    """A row's key and what readers see of it, as JSON. They do not see a deleted row."""

    key: str
    row: str | None

    @property
    def key_data(self) -> dict[str, Any]:
        data: dict[str, Any] = exact_json.read(self.key)
        return data

    @property
    def row_data(self) -> dict[str, Any] | None:
        data: dict[str, Any] | None = exact_json.read(self.row or "null")
        return data


ShownRows = tuple[ShownRow, ...]


def as_data(rows: ShownRows) -> list[dict[str, Any]]:
    """The rows that readers see."""
    return [each.row_data for each in rows if each.row_data is not None]


def of_states(settings: Settings, states: Iterable[tuple[Table, pa.Table]]) -> list[dict[int, ShownRows]]:
    """The rows of each step, ordered by key, for the stored columns of each of these tables, with the step.

    PostgreSQL computes them, in tables that only this session sees.
    """
    with adbc.connect(settings.database_uri(), autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute("SET timezone = 'UTC'")
        return [_of_states(cursor, *each) for each in states]


def _of_states(cursor: adbc.Cursor, table: Table, states: pa.Table) -> dict[int, ShownRows]:
    if not states.num_rows:
        return {}
    columns, scratch = definitions({STEP: "integer", **table.stored_columns}), sql.Identifier("pg_temp", _SCRATCH)
    cursor.execute(sql.SQL("CREATE TABLE {} ({})").format(scratch, columns).as_string(None))
    cursor.adbc_ingest(_SCRATCH, states, mode="append", temporary=True)
    cursor.execute(_select(table, scratch).as_string(None))
    found: dict[int, list[ShownRow]] = {}
    for step, key, row in cursor.fetchall():
        found.setdefault(int(step), []).append(ShownRow(key, row))
    cursor.execute(sql.SQL("DROP TABLE {}").format(scratch).as_string(None))
    return {step: tuple(each) for step, each in found.items()}


def of_table(connection: Connection, table: Table, condition: sql.Composable) -> ShownRows:
    """The rows of the table's stream, or of a batch-only view, that fulfil the condition, ordered by key."""
    rows = sql.SQL("(SELECT 0 AS {}, * FROM {} WHERE {}) AS chosen").format(
        sql.Identifier(STEP), sql.Identifier(table.schema, table.name), condition
    )
    found = connection.execute(_select(table, rows)).fetchall()
    return tuple(ShownRow(str(key), None if row is None else str(row)) for _, key, row in found)


def _select(table: Table, rows: sql.Composable) -> sql.Composed:
    """The query of the rows with their step, in order."""
    return sql.SQL(
        "SELECT {step}, {key}, CASE WHEN {shown_if} THEN {row} END FROM {rows} ORDER BY {step}, {order}"
    ).format(
        step=sql.Identifier(STEP),
        key=_json({name: f'"{name}"' for name in table.view.key}),
        shown_if=sql.SQL(table.shown_if),
        row=_json(table.shown_values),
        rows=rows,
        order=sql.SQL(", ").join(map(sql.Identifier, table.view.key)),
    )


def _json(columns: dict[str, str]) -> sql.Composed:
    """The JSON of a row with these columns, given by their SQL."""
    selected = (sql.SQL("{} AS {}").format(sql.SQL(e), sql.Identifier(c)) for c, e in columns.items())
    return sql.SQL("(SELECT row_to_json(_row)::text FROM (SELECT {}) AS _row)").format(sql.SQL(", ").join(selected))
