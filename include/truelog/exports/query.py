"""Row queries: which rows and columns to read from a view or from one of its relations.

User input never becomes part of a query's text: columns and relations are looked up by name, and the database casts
each value to the type of its column.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum

import psycopg
from psycopg import sql

from truelog.storage import db_snapshot
from truelog.storage.database import Connection
from truelog.support.errors import BadInput, NotSetUp

UNSORTED = frozenset({"json", "xml", "point"})  # PostgreSQL cannot compare values of these types


class Operator(StrEnum):
    EQUAL = "="
    UNEQUAL = "<>"
    LESS = "<"
    AT_MOST = "<="
    MORE = ">"
    AT_LEAST = ">="
    CONTAINS = "contains"
    MISSING = "is NULL"
    PRESENT = "is not NULL"


WITHOUT_OPERAND = (Operator.MISSING, Operator.PRESENT)
_WRITTEN = re.compile(r"([^\s=<>]+)(?:(<>|<=|>=|=|<|>| contains )(.*)| (is NULL|is not NULL))", re.DOTALL)


@dataclass(frozen=True)
class Condition:
    """A condition on one column; operators without an operand ignore `value`."""

    column: str
    operator: Operator
    value: str = ""

    @staticmethod
    def parse(text: str) -> "Condition":
        """The condition that `text` states, such as `minute>=2026-01-01T00:00` or `host is NULL`.

        Raises:
            BadInput: the text is not a condition.
        """
        found = _WRITTEN.fullmatch(text)
        if found is None:
            raise BadInput(
                f"{text!r} is not a condition: write COLUMN=VALUE without spaces around the operator, which is one of "
                "=, <>, <, <=, > and >=, or write `COLUMN contains TEXT`, `COLUMN is NULL` or `COLUMN is not NULL`"
            )
        column, operator, value, alone = found.groups()
        return Condition(column, Operator(alone or operator.strip()), value or "")


@dataclass(frozen=True)
class RowQuery:
    """The rows to read, which meet all conditions. Without `columns`, all columns; without `limit`, all rows.

    Rows with equal values in `order` are ordered by the other columns, so that pages do not overlap. Readers see the
    relations in `schema`.
    """

    relation: str
    conditions: Sequence[Condition] = ()
    order: str | None = None
    descending: bool = True
    columns: Sequence[str] = ()
    limit: int | None = 50
    skip: int = 0
    schema: str = "views"


Column = dict[str, str | None]  # the name, type and comment


def find_columns(connection: Connection, query: RowQuery) -> list[Column]:
    """The chosen columns.

    Raises:
        NotSetUp: the view does not exist yet.
        BadInput: a chosen column does not exist.
    """
    known = {str(each["name"]): each for each in _all_columns(connection, query)}
    if not known:
        raise NotSetUp(f"{query.schema}.{query.relation} does not exist yet: the stream creates it on its first run.")
    for name in query.columns:
        column_sql(known, name)
    return [known[name] for name in query.columns or known]


def select(connection: Connection, query: RowQuery, shown: sql.SQL) -> sql.Composed:
    """The statement that reads the rows; `shown` is the expression of a column, with `{}` in place of its name.

    Raises: the errors of `find_columns`, and BadInput if another column does not exist.
    """
    types = {str(each["name"]): str(each["type"]) for each in _all_columns(connection, query)}
    chosen = [shown.format(column_sql(types, str(each["name"]))) for each in find_columns(connection, query)]
    return sql.SQL("SELECT {} FROM {}{}{} LIMIT {} OFFSET {}").format(
        sql.SQL(", ").join(chosen),
        sql.Identifier(query.schema, query.relation),
        _where(types, query.conditions),
        _order(types, query.order, sql.SQL(" DESC" if query.descending else "")) if query.order else sql.SQL(""),
        sql.Literal(query.limit),
        sql.Literal(query.skip),
    )


def _all_columns(connection: Connection, query: RowQuery) -> list[Column]:
    return db_snapshot.view_columns(connection, query.relation, query.schema)


@contextmanager
def refused_input(
    connection: Connection, seconds: int | None = None, cure: str = "Request fewer rows or order by a key column"
) -> Iterator[None]:
    """Limit the duration of queries, and turn the errors that the user's input causes into BadInput."""
    if seconds is not None:
        connection.execute(sql.SQL("SET LOCAL statement_timeout = {}").format(sql.Literal(f"{seconds}s")))
    try:
        yield
    except psycopg.errors.QueryCanceled as slow:
        raise BadInput(f"the query takes longer than {seconds} s. {cure}") from slow
    except psycopg.DataError as wrong:
        raise BadInput(str(wrong).splitlines()[0]) from wrong


def _where(types: Mapping[str, str], conditions: Sequence[Condition]) -> sql.Composable:
    stated = sql.SQL(" AND ").join(condition_sql(types, each, sql.Literal(each.value)) for each in conditions)
    return sql.SQL(" WHERE {}").format(stated) if conditions else sql.SQL("")


def condition_sql(types: Mapping[str, str], condition: Condition, value: sql.Composable) -> sql.Composed:
    """The SQL of a condition. `value` is the SQL of its operand, which is text.

    Raises:
        BadInput: there is no such column.
    """
    column = column_sql(types, condition.column)
    if condition.operator in WITHOUT_OPERAND:
        return sql.SQL("{} {}").format(column, sql.SQL(condition.operator.value))
    if condition.operator is Operator.CONTAINS:
        return sql.SQL("position(lower({}) IN lower({}::text)) > 0").format(value, column)
    as_type = sql.SQL("CAST({} AS {})").format(value, sql.SQL(types[condition.column]))
    return sql.SQL("{} {} {}").format(column, sql.SQL(condition.operator.value), as_type)


def _order(types: Mapping[str, str], first: str, direction: sql.SQL) -> sql.Composed:
    """All columns in one direction, so that the index of the key gives the rows in order if the key comes first."""
    sortable = [name for name, type_ in types.items() if type_ not in UNSORTED]
    names = dict.fromkeys([first, *sortable])
    return sql.SQL(" ORDER BY {}").format(sql.SQL(", ").join(column_sql(types, each) + direction for each in names))


def column_sql(known: Mapping[str, object], name: str) -> sql.Identifier:
    """The SQL of a column.

    Raises:
        BadInput: there is no such column.
    """
    if name not in known:
        raise BadInput(f"there is no column {name!r}; the columns are {', '.join(known)}")
    return sql.Identifier(name)
