"""A compiled table of counts: the tables whose rows it matches, and its rows in Spark."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, LongType, StructType

from truelog.support.errors import BadDeclaration
from truelog.views.join import Match, split

if TYPE_CHECKING:
    from truelog.tables.compiled_view import CompiledView


@dataclass(frozen=True)
class Joined:
    """The matches that a table counts, by column, and the tables in these matches, by name."""

    counts: Mapping[str, Match]
    tables: Mapping[str, "CompiledView"]

    def rows(self, key: tuple[str, ...], states: Callable[["CompiledView"], DataFrame]) -> DataFrame:
        """The rows of the table, given the states of the tables that it follows from."""
        found = {name: rows_of(table, states(table)) for name, table in self.tables.items()}
        parts = [
            combinations(match, {each: found[match.table(each)] for each in match.tables}).select(
                *(F.col(match.key[k]).alias(k) for k in key), *self._ones(name)
            )
            for name, match in self.counts.items()
        ]
        matched = reduce(DataFrame.unionByName, parts).where(_all(F.col(k).isNotNull() for k in key))
        return matched.groupBy(*key).agg(*(F.sum(name).alias(name) for name in self.counts))

    def with_key(self, column: str, extended: Callable[["CompiledView"], "CompiledView"]) -> "Joined":
        """The same table of counts with one more key column, which `extended` adds to the tables before it."""
        counts = {name: match.with_key(column) for name, match in self.counts.items()}
        return Joined(counts, {name: extended(table) for name, table in self.tables.items()})

    def _ones(self, counted: str) -> Iterator[Column]:
        return (F.lit(int(name == counted)).alias(name) for name in self.counts)


def relation(table: "CompiledView") -> dict[str, DataType]:
    """The columns that a match may use of a table, with their types."""
    keys = {k: table.dtypes[k] for k in table.view.key}
    if table.joined is not None:
        return keys | dict.fromkeys(table.joined.counts, LongType())
    [name] = _latest(table)
    struct = table.dtypes[name]
    assert isinstance(struct, StructType)  # noqa: S101
    return keys | {column: struct[column].dataType for column in table.shown if column not in keys}


def live_sql(table: "CompiledView") -> str:
    """The SQL condition for a stored row that exists and has no NULL in its key."""
    present = [f'"{k}" IS NOT NULL' for k in table.view.key]
    return " AND ".join([*present, *(table.view.measures[name].exists_if(name) for name in _latest(table))])


def rows_of(table: "CompiledView", states: DataFrame) -> DataFrame:
    """The rows of a table that exist and have no NULL in their keys."""
    return versions_of(table, states.where(_all([F.lit(True), *(~F.col(name)["deleted"] for name in _latest(table))])))


def versions_of(table: "CompiledView", rows: DataFrame) -> DataFrame:
    """The columns that a match may use, of rows without NULL in their keys; also of rows that are deleted."""
    latest = _latest(table)
    fields = {c: F.col(latest[0])[c] if latest and c not in table.view.key else F.col(c) for c in relation(table)}
    present = rows.where(_all(F.col(k).isNotNull() for k in table.view.key))
    return present.select(*(column.alias(name) for name, column in fields.items()))


def type_of(column: str, match: Match, tables: Mapping[str, "CompiledView"]) -> DataType:
    """The type of "table.column" in a match.

    Raises:
        BadDeclaration: there is no such column.
    """
    table, name = split(column)
    columns = relation(tables[match.table(table)])
    if name not in columns:
        raise BadDeclaration(f"{table} has no column {name!r}, only {', '.join(columns)}")
    return columns[name]


def _all(conditions: Iterable[Column]) -> Column:
    return reduce(Column.__and__, conditions)


def _latest(table: "CompiledView") -> list[str]:
    return [name for name, measure in table.view.measures.items() if measure.keeps_one_event]


def combinations(match: Match, found: Mapping[str, DataFrame]) -> DataFrame:
    """The combinations of the rows that were found for each name in the match, with columns "table.column"."""
    first, *others = match.tables
    frame = found[first].alias(first)
    for number, name in enumerate(others, 1):
        pairs = match.pairs(name, match.tables[:number])
        equal = _all(F.col(f"{name}.{mine}") == F.col(theirs) for mine, theirs in pairs)
        frame = frame.join(found[name].alias(name), equal)
    for column, operator, value in match.where:
        frame = frame.where(F.expr(f"{column} {operator} {value}"))
    return frame
