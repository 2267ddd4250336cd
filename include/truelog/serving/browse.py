"""Browsing: some rows of a view, as text, for people; by one condition on one column.

What people type is a value and never a part of the query: columns and relations are looked up by name, and the
database reads the value as the column's own type.
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
_CHARACTERS = 2_000  # of one value


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
    """`value` is not looked at where the operator takes none."""

    column: str
    operator: Operator
    value: str = ""


@dataclass(frozen=True)
class RowQuery:
    """Without an order, by the first column; `descending` is the newest first where that is a time."""

    relation: str
    condition: Condition | None = None
    order: str | None = None
    descending: bool = True
    limit: int = 50


@dataclass(frozen=True)
class RowPage:
    """The rows, each value as text or None; whether there are more."""

    columns: Sequence[dict[str, str | None]]
    rows: Sequence[Sequence[str | None]]
    more: bool


def fetch_rows(connection: Connection, question: RowQuery) -> RowPage:
    """Within a read-only snapshot that the caller has.

    Raises:
        NotSetUp: the view is not made yet.
        BadInput: there is no such column; the value is none of its type; or the answer takes too long.
    """
    columns = db_snapshot.view_columns(connection, question.relation)
    if not columns:
        raise NotSetUp(f"views.{question.relation} is not made yet: its stream makes it when it first runs.")
    limit = max(1, min(LIMIT, question.limit))
    connection.execute(sql.SQL("SET LOCAL statement_timeout = {}").format(sql.Literal(f"{SECONDS}s")))
    try:
        found = connection.execute(_query(columns, question, limit + 1)).fetchall()
    except psycopg.errors.QueryCanceled as slow:
        raise BadInput(f"this takes longer than {SECONDS} s: ask for less, or order by a key column") from slow
    except psycopg.DataError as wrong:
        raise BadInput(f"{str(wrong).splitlines()[0]}") from wrong
    rows = [[None if value is None else str(value) for value in row] for row in found]
    return RowPage(columns, rows[:limit], len(rows) > limit)


def _query(columns: Sequence[dict[str, str | None]], question: RowQuery, limit: int) -> sql.Composed:
    types = {str(each["name"]): str(each["type"]) for each in columns}
    shown = [sql.SQL("left({}::text, {})").format(sql.Identifier(n), sql.Literal(_CHARACTERS)) for n in types]
    return sql.SQL("SELECT {} FROM {}{} ORDER BY {}{} LIMIT {}").format(
        sql.SQL(", ").join(shown),
        sql.Identifier("views", question.relation),
        _where(types, question.condition) if question.condition else sql.SQL(""),
        _column(types, question.order or next(iter(types))),
        sql.SQL(" DESC" if question.descending else ""),
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
        raise BadInput(f"there is no column {name!r}; there are {', '.join(types)}")
    return sql.Identifier(name)
