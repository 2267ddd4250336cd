"""Browsing: reads some rows of a view as text, filtered by one condition on one column.

User input never becomes part of a query's text: columns and relations are looked up by name, and the database casts
the value to the column type.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import psycopg
from psycopg import sql

from truelog.storage import db_snapshot
from truelog.storage.database import Connection
from truelog.support.errors import BadInput, NotSetUp

LIMIT = 500  # rows
SECONDS = 5
_CHARACTERS = 2_000  # shown per value


class Operator(StrEnum):
    EQUAL = "="
    UNEQUAL = "<>"
    LESS = "<"
    AT_MOST = "<="
    MORE = ">"
    AT_LEAST = ">="
    CONTAINS = "contains"
    MISSING = "is NULL"


@dataclass(frozen=True)
class Condition:
    """A condition on one column; operators without an operand ignore `value`."""

    column: str
    operator: Operator
    value: str = ""


@dataclass(frozen=True)
class RowQuery:
    """The rows to read. If `order` is None, the first column determines the order."""

    relation: str
    condition: Condition | None = None
    order: str | None = None
    descending: bool = True
    limit: int = 50


@dataclass(frozen=True)
class RowPage:
    """The rows, with each value as text or None, and whether more rows match."""

    columns: Sequence[dict[str, str | None]]
    rows: Sequence[Sequence[str | None]]
    more: bool


def fetch_rows(connection: Connection, query: RowQuery) -> RowPage:
    """Read rows within the caller's read-only snapshot.

    Raises:
        NotSetUp: the view does not exist yet.
        BadInput: the column does not exist, the value does not have the column type, or the query takes too long.
    """
    columns = db_snapshot.view_columns(connection, query.relation)
    if not columns:
        raise NotSetUp(f"views.{query.relation} does not exist yet: the stream creates it on its first run.")
    limit = max(1, min(LIMIT, query.limit))
    connection.execute(sql.SQL("SET LOCAL statement_timeout = {}").format(sql.Literal(f"{SECONDS}s")))
    try:
        found = connection.execute(_select(columns, query, limit + 1)).fetchall()
    except psycopg.errors.QueryCanceled as slow:
        raise BadInput(
            f"the query takes longer than {SECONDS} s. Request fewer rows or order by a key column"
        ) from slow
    except psycopg.DataError as wrong:
        raise BadInput(f"{str(wrong).splitlines()[0]}") from wrong
    rows = [[None if value is None else str(value) for value in row] for row in found]
    return RowPage(columns, rows[:limit], len(rows) > limit)


def _select(columns: Sequence[dict[str, str | None]], query: RowQuery, limit: int) -> sql.Composed:
    types = {str(each["name"]): str(each["type"]) for each in columns}
    shown = [sql.SQL("left({}::text, {})").format(sql.Identifier(n), sql.Literal(_CHARACTERS)) for n in types]
    return sql.SQL("SELECT {} FROM {}{} ORDER BY {}{} LIMIT {}").format(
        sql.SQL(", ").join(shown),
        sql.Identifier("views", query.relation),
        _where(types, query.condition) if query.condition else sql.SQL(""),
        _column(types, query.order or next(iter(types))),
        sql.SQL(" DESC" if query.descending else ""),
        sql.Literal(limit),
    )


def _where(types: dict[str, str], condition: Condition) -> sql.Composed:
    column, value = _column(types, condition.column), sql.Literal(condition.value)
    if condition.operator is Operator.MISSING:
        return sql.SQL(" WHERE {} IS NULL").format(column)
    if condition.operator is Operator.CONTAINS:
        return sql.SQL(" WHERE position(lower({}) IN lower({}::text)) > 0").format(value, column)
    as_type = sql.SQL("CAST({} AS {})").format(value, sql.SQL(types[condition.column]))
    return sql.SQL(" WHERE {} {} {}").format(column, sql.SQL(condition.operator.value), as_type)


def _column(types: dict[str, str], name: str) -> sql.Identifier:
    if name not in types:
        raise BadInput(f"there is no column {name!r}; the columns are {', '.join(types)}")
    return sql.Identifier(name)
