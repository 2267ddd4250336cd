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
    """The rows, with each value as text or None, and whether more rows match.

    `cut` has the row and the column of each value that is longer than what is shown of it.
    """

    columns: Sequence[Column]
    rows: Sequence[Sequence[str | None]]
    more: bool
    order: str
    cut: Sequence[tuple[int, int]]


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
        shown = sql.SQL(f"left({{}}::text, {_CHARACTERS + 1})")
        found = connection.execute(row_query.select(connection, query, shown)).fetchall()
    rows, more = found[:limit], len(found) > limit
    cut = [(i, j) for i, row in enumerate(rows) for j, value in enumerate(row) if len(value or "") > _CHARACTERS]
    shown_rows = [[None if value is None else str(value)[:_CHARACTERS] for value in row] for row in rows]
    return RowPage(columns, shown_rows, more, str(query.order), cut)
