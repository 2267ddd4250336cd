"""Browsing: reads one page of the rows of a view as text."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from psycopg import sql

from truelog.exports import query as row_query
from truelog.exports.query import Column, RowQuery
from truelog.storage.database import Connection

LIMIT = 500  # rows
MOST_SKIPPED = 100_000  # rows; PostgreSQL reads the rows that a page skips
SECONDS = 5
_CHARACTERS = 2_000  # shown per value


@dataclass(frozen=True)
class RowPage:
    """The rows, with each value as text or None, and whether more rows match."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[str | None]]
    more: bool
    order: str


def fetch_rows(connection: Connection, query: RowQuery) -> RowPage:
    """Read rows within the caller's read-only snapshot. By default, the first column determines the order.

    Raises:
        NotSetUp: the view does not exist yet.
        BadInput: the column does not exist, the value does not have the column type, or the query takes too long.
    """
    columns = row_query.find_columns(connection, query)
    limit = max(1, min(LIMIT, query.limit or LIMIT))
    query = replace(query, limit=limit + 1, order=query.order or str(columns[0]["name"]))
    with row_query.refused_input(connection, SECONDS):
        shown = sql.SQL(f"left({{}}::text, {_CHARACTERS})")
        found = connection.execute(row_query.select(connection, query, shown)).fetchall()
    rows = [[None if value is None else str(value) for value in row] for row in found]
    return RowPage(columns, rows[:limit], len(rows) > limit, str(query.order))
