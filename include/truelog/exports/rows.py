"""Exports the rows of a view as JSON or CSV, with complete values.

In CSV, each value is JSON text. NULL therefore differs from an empty string, bytes are hexadecimal digits, and a value
that a spreadsheet would read as a formula begins with a quotation mark.
"""

import csv
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from psycopg import sql

from truelog.exports import query as row_query
from truelog.exports.query import Column, RowQuery
from truelog.storage.database import Connection

LIMIT = 100_000  # rows
SECONDS = 60  # for each 2,000 rows
_FETCH_ROWS = 2_000

Row = Sequence[str | None]  # each value as JSON text; NULL is None


@dataclass(frozen=True)
class Rows:
    """Columns, and rows that are read while they are consumed."""

    columns: Sequence[Column]
    rows: Iterator[Row]

    @property
    def names(self) -> list[str]:
        return [str(each["name"]) for each in self.columns]


def stream_rows(connection: Connection, query: RowQuery, seconds: int | None = None) -> Rows:
    """The rows of a query within the caller's read-only snapshot, without an order if the query has none.

    Raises:
        NotSetUp: the view does not exist yet.
        BadInput: a column does not exist, a value does not have the column type, or the query takes too long.
    """
    columns = row_query.find_columns(connection, query)
    statement = row_query.select(connection, query, sql.SQL("to_json({})::text"))

    def rows() -> Iterator[Row]:
        with row_query.refused_input(connection, seconds), connection.cursor("rows") as cursor:
            cursor.itersize = _FETCH_ROWS
            yield from cursor.execute(statement)

    return Rows(columns, _begun(rows()))


def json_lines(found: Rows) -> Iterator[str]:
    """Each row as a JSON object, as `row_to_json` writes it."""
    names = [json.dumps(name, ensure_ascii=False) for name in found.names]
    for row in found.rows:
        yield "{" + ",".join(f"{n}:{'null' if v is None else v}" for n, v in zip(names, row, strict=True)) + "}"


def json_array(lines: Iterable[str]) -> Iterator[str]:
    """JSON values as one JSON array."""
    prefix = "["
    for line in lines:
        yield prefix + line
        prefix = ",\n"
    yield "[]" if prefix == "[" else "]\n"


def csv_lines(head: Sequence[str], rows: Iterable[Row]) -> Iterator[str]:
    for row in chain([head], rows):
        text = io.StringIO()
        csv.writer(text).writerow(row)
        yield text.getvalue()


def _begun(rows: Iterator[Row]) -> Iterator[Row]:
    """The same rows after the first has been read, so that invalid input is refused before an answer begins."""
    first = next(rows, None)

    def again() -> Iterator[Row]:
        if first is not None:
            yield first
        yield from rows

    return again()
