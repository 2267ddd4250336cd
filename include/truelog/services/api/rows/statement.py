"""The statement that reads rows, and with them what they were made of, in one snapshot of the database.

The statement's text depends only on the form of the question, and every value is a parameter. PostgreSQL therefore
plans a question of the same form only once.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from psycopg import sql

from truelog.exports.query import UNSORTED, Condition, Operator, column_sql, condition_sql
from truelog.services.api.rows.catalogue import Relation
from truelog.support.errors import BadInput

# The rows are read only as long as the page needs, and the sorted page is aggregated as it is. Rows beyond `most` bytes
# are counted, but not returned, except the first one.
_STATEMENT = """
SELECT s.version, s.layer, s.clock, s.offsets::text, s.ids::text, s.state, r.rows, r.places, r.number
FROM truelog.served_version s CROSS JOIN LATERAL (
    SELECT array_agg(counted.row) FILTER (WHERE fits) AS rows, array_agg(counted.place) FILTER (WHERE fits) AS places,
        count(*) AS number
    FROM (
        SELECT page.row, page.place, row_number() OVER so_far = 1
            OR sum(octet_length(page.row) + octet_length(page.place)) OVER so_far <= %(most)s::bigint AS fits
        FROM ({page}) AS page WINDOW so_far AS (ROWS UNBOUNDED PRECEDING)
    ) AS counted
) r WHERE s.view = %(view)s AND s.version = {version}
    AND (s.view, s.version) NOT IN (SELECT view, version FROM truelog.held)
"""
_PINNED = "%(version)s::integer"
# The share of readers that gets another version may change at any moment, so the same snapshot decides.
_OF_READER = """(
    SELECT v.version FROM truelog.reader_version v
    WHERE v.view = %(view)s AND %(slot)s::integer >= v.first_slot AND %(slot)s::integer < v.end_slot
)"""


@dataclass(frozen=True)
class Order:
    """One column of an order. As in PostgreSQL, NULL is the greatest value."""

    column: str
    descending: bool = False


@dataclass(frozen=True)
class RowQuestion:
    """The rows to read. `after` has the text of each column in `order` of the last row of the page before.

    slot: of the reader, who gets the version that its slot has in the view.
    version: that the relation belongs to, whatever version the view shows.
    """

    relation: Relation
    conditions: tuple[Condition, ...]
    columns: tuple[str, ...]
    order: tuple[Order, ...]
    limit: int
    after: tuple[str | None, ...] | None = None
    slot: int = 0
    version: int | None = None

    def statement(self, view: str) -> tuple[bytes, dict[str, str | None]]:
        """The statement and its parameters. It reads one row more than the limit, to see whether there are more.

        Raises:
            BadInput: a column does not exist, or cannot be ordered.
        """
        form = _Form(
            self.relation.name,
            tuple(self.relation.types.items()),
            tuple((each.column, each.operator) for each in self.conditions),
            self.columns,
            self.order,
            self.limit + 1,
            None if self.after is None else tuple(each is None for each in self.after),
            self.version is not None,
        )
        values: dict[str, str | None] = {f"c{n}": each.value for n, each in enumerate(self.conditions)}
        values |= {f"a{n}": value for n, value in enumerate(self.after or ())}
        of = {"slot": str(self.slot)} if self.version is None else {"version": str(self.version)}
        return _text(form), {"view": view, **of, **values}


@dataclass(frozen=True)
class _Form:
    """A question without its values. `is_null` says which columns of the place of the row before are NULL."""

    relation: str
    type_items: tuple[tuple[str, str], ...]
    operators: tuple[tuple[str, Operator], ...]
    columns: tuple[str, ...]
    order: tuple[Order, ...]
    limit: int
    is_null: tuple[bool, ...] | None
    is_pinned: bool


@lru_cache(maxsize=1_024)
def _text(form: _Form) -> bytes:
    types, order = dict(form.type_items), form.order
    for each in order:
        if types.get(each.column) in UNSORTED:
            raise BadInput(f"{each.column} has the type {types[each.column]}, which has no order")
    asked = [
        condition_sql(types, Condition(column, operator), sql.Placeholder(f"c{number}"))
        for number, (column, operator) in enumerate(form.operators)
    ]
    selected, limit = _selected(form, types), sql.Literal(form.limit)
    ending = sql.SQL("{} LIMIT {}").format(_sorting(types, order), limit)
    if form.is_null is None:
        page = sql.SQL("{}{}{}").format(selected, _where(asked), ending)
    else:
        conditions = [[*asked, *arm] for arm in _arms(types, order, form.is_null)]
        arms = [sql.SQL("({}{}{})").format(selected, _where(each), ending) for each in conditions]
        merged_by = sql.SQL(", ").join(sql.Identifier(f"o{n}") + _direction(each) for n, each in enumerate(order))
        page = sql.SQL("SELECT row, place FROM ({}) AS arms ORDER BY {} LIMIT {}").format(
            sql.SQL(" UNION ALL ").join(arms), merged_by, limit
        )
    return with_source(page, pinned=form.is_pinned)


def with_source(page: sql.Composed, *, pinned: bool = False) -> bytes:
    """The statement that reads a page of rows and places, and what the rows of the view `%(view)s` were made of.

    The version is that of the reader with the slot `%(slot)s`, or if `pinned`, the version `%(version)s`. The caller
    compares it with the version that the relation belongs to. The rows have up to `%(most)s` bytes with their places.
    """
    return sql.SQL(_STATEMENT).format(page=page, version=sql.SQL(_PINNED if pinned else _OF_READER)).as_bytes(None)


def _selected(form: _Form, types: dict[str, str]) -> sql.Composed:
    """The row as JSON, its place in the order as JSON texts, and the columns of the order, by which arms are merged."""
    chosen = sql.SQL(", ").join(sql.SQL("r.{}").format(column_sql(types, each)) for each in form.columns or types)
    sorted_by = [sql.SQL("r.{}").format(column_sql(types, each.column)) for each in form.order]
    place = sql.SQL(", ").join(sql.SQL("{}::text").format(each) for each in sorted_by)
    merged_by = [sql.SQL(", {} AS {}").format(each, sql.Identifier(f"o{n}")) for n, each in enumerate(sorted_by)]
    return sql.SQL(
        "SELECT (SELECT row_to_json(_row)::text FROM (SELECT {}) AS _row) AS row, "
        "to_json(ARRAY[{}]::text[])::text AS place{} FROM {} AS r"
    ).format(chosen, place, sql.Composed(merged_by), sql.Identifier("views", form.relation))


def _where(conditions: Sequence[sql.Composable]) -> sql.Composed:
    stated = sql.SQL(" AND ").join(conditions)
    return sql.SQL(" WHERE {}").format(stated) if conditions else sql.Composed([])


def _sorting(types: dict[str, str], order: Sequence[Order]) -> sql.Composed:
    if not order:
        return sql.Composed([])
    sorted_by = (column_sql(types, each.column) + _direction(each) for each in order)
    return sql.SQL(" ORDER BY {}").format(sql.SQL(", ").join(sorted_by))


def _direction(order: Order) -> sql.SQL:
    return sql.SQL(" DESC") if order.descending else sql.SQL("")


def _arms(
    types: dict[str, str], order: Sequence[Order], is_null: Sequence[bool]
) -> Iterator[tuple[sql.Composable, ...]]:
    """The conditions of the rows behind a row, as disjoint parts: each is one range of an index on the order.

    In each part, the row equals the earlier row in some columns, and is behind it in the next one.
    """
    equal: list[sql.Composable] = []
    for number, each in enumerate(order):
        column = column_sql(types, each.column)
        value = sql.SQL("CAST({} AS {})").format(sql.Placeholder(f"a{number}"), sql.SQL(types[each.column]))
        if is_null[number]:
            if each.descending:
                yield (*equal, sql.SQL("{} IS NOT NULL").format(column))
            equal.append(sql.SQL("{} IS NULL").format(column))
            continue
        comparison = sql.SQL("{} < {}" if each.descending else "{} > {}")
        yield (*equal, comparison.format(column, value))
        if not each.descending:
            yield (*equal, sql.SQL("{} IS NULL").format(column))
        equal.append(sql.SQL("{} = {}").format(column, value))


def place(text: str) -> tuple[str | None, ...]:
    """The text of each column of the order, as the statement returns it for a row."""
    return tuple(json.loads(text))
