"""Filters: which rows a subscriber follows. A filter names columns of the key, so no change moves a row in or out."""

from collections.abc import Sequence
from dataclasses import dataclass

from psycopg import sql

from truelog.exports.query import Condition, Operator, condition_sql
from truelog.services.api.rows.catalogue import Relation
from truelog.services.api.scoped_token import Scope
from truelog.support.errors import BadInput

_SUPPORTED = (Operator.EQUAL, Operator.MISSING)
Values = tuple[bytes, ...]


@dataclass(frozen=True)
class Filter:
    """The rows in which columns of the key have given values. Without conditions, all rows."""

    relation: Relation
    conditions: tuple[Condition, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(each.column for each in self.conditions)

    @property
    def values(self) -> dict[str, str]:
        """The parameters of the statements."""
        return {f"c{number}": each.value for number, each in enumerate(self.conditions)}

    def where(self) -> sql.Composable:
        """The condition of a statement that reads the rows."""
        types = dict(self.relation.types)
        stated = [
            condition_sql(types, each, sql.Placeholder(f"c{number}")) for number, each in enumerate(self.conditions)
        ]
        return sql.SQL(" WHERE {}").format(sql.SQL(" AND ").join(stated)) if stated else sql.SQL("")

    def row(self) -> sql.Composable:
        """The expression of an object with the values, as the outbox writes keys."""
        cast = [
            sql.SQL("CAST({} AS {}) AS {}").format(
                sql.SQL("NULL") if each.operator is Operator.MISSING else sql.Placeholder(f"c{number}"),
                sql.SQL(self.relation.types[each.column]),
                sql.Identifier(each.column),
            )
            for number, each in enumerate(self.conditions)
        ]
        return sql.SQL("(SELECT row_to_json(_row)::text FROM (SELECT {}) AS _row)").format(sql.SQL(", ").join(cast))


def filter_of(relation: Relation, key: Sequence[str], where: Sequence[str], scope: Scope | None) -> Filter:
    """The filter of a request, limited to what a scoped token permits.

    Raises:
        BadInput: a condition does not name a column of the key, is not an equality, or contradicts another one.
    """
    if key and len(key) != len(relation.key):
        named = ", ".join(relation.key)
        raise BadInput(f"key: give one value for each column of the key, which has {named}; use `where` for a part")
    stated = [Condition.parse(each) for each in where]
    stated += [Condition(column, Operator.EQUAL, value) for column, value in zip(relation.key, key, strict=False)]
    stated += [Condition(column, Operator.EQUAL, value) for column, value in (scope.values if scope else {}).items()]
    for each in stated:
        if each.column not in relation.key or each.operator not in _SUPPORTED:
            named = ", ".join(relation.key)
            raise BadInput(f"where: changes are followed by COLUMN=VALUE or `COLUMN is NULL`; the key has {named}")
    conditions = tuple(sorted(set(stated), key=repr))
    # An object would have the column twice, and only the last value would count, even beside the scope of a token.
    if len({each.column for each in conditions}) < len(conditions):
        raise BadInput("where: two conditions name one column, and no row fits both; a token names its columns already")
    return Filter(relation, conditions)
