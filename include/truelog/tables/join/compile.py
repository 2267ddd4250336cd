"""A compiled table of counts: the tables whose rows it matches, and its rows in Spark."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, LongType, StructType

from truelog.support.errors import BadDeclaration
from truelog.tables.table import KEY_BYTES, Table
from truelog.views.join import Join, Match, split


@dataclass(frozen=True)
class Joined:
    """The matches that a table counts, by column, and the tables in these matches, by name."""

    counts: Mapping[str, Match]
    tables: Mapping[str, Table]

    @property
    def follows_from(self) -> Sequence[Table]:
        return [*self.tables.values()]

    def states(self, table: Table, states_of: Callable[[Table], DataFrame]) -> DataFrame:
        return self.rows(table.view.key, states_of)

    def rows(self, key: tuple[str, ...], states_of: Callable[[Table], DataFrame]) -> DataFrame:
        """The rows with this key, given the states of the tables from which they follow."""
        found = {name: rows_of(each, states_of(each)) for name, each in self.tables.items()}
        parts = [
            combinations(match, {each: found[match.table(each)] for each in match.tables}).select(
                *(F.col(match.key[k]).alias(k) for k in key), *self._ones(name)
            )
            for name, match in self.counts.items()
        ]
        matched = reduce(DataFrame.unionByName, parts).where(_all(F.col(k).isNotNull() for k in key))
        return matched.groupBy(*key).agg(*(F.sum(name).alias(name) for name in self.counts))

    def with_key(self, column: str, dtype: DataType) -> "Joined":
        """The same matches with one more key column, also in the tables that they match."""
        counts = {name: match.with_key(column) for name, match in self.counts.items()}
        return Joined(counts, {name: with_key(table, column, dtype) for name, table in self.tables.items()})

    def _ones(self, counted: str) -> Iterator[Column]:
        return (F.lit(int(name == counted)).alias(name) for name in self.counts)


def text_bytes(join: Join) -> int:
    """The limit for each text that a key or an index of a Join's tables contains.

    It is one limit for all tables, so that equal texts stay equal when they are shortened.
    """
    keys = [join.key, *(each.key for each in join.sides.values()), *(each.key for each in join.totals.values())]
    looked_up = ([mine for mine, _ in each.pairs(name, each.tables)] for each in _matches(join) for name in each.tables)
    return KEY_BYTES // max(map(len, (*keys, *looked_up)))


def matched(join: Join, table: str) -> frozenset[str]:
    """The columns of a table that matches connect or select."""
    return frozenset(column for match in _matches(join) for name in match.names(table) for column in match.used(name))


def _matches(join: Join) -> list[Match]:
    counted = [join.counts, *(each.counts for each in join.totals.values())]
    return [match for counts in counted for match in counts.values()]


def with_key(table: Table, column: str, dtype: DataType) -> Table:
    """A table of a Join with one more key column, also in the tables that it follows from."""
    derivation = table.derivation.with_key(column, dtype) if isinstance(table.derivation, Joined) else None
    return replace(table.with_key(column, dtype), derivation=derivation)


def joined_of(table: Table) -> Joined:
    """The matches that a table of counts counts."""
    assert isinstance(table.derivation, Joined)  # noqa: S101
    return table.derivation


def relation(table: Table) -> dict[str, DataType]:
    """The columns that a match may use of a table, with their types."""
    keys = {k: table.dtypes[k] for k in table.view.key}
    if isinstance(table.derivation, Joined):
        return keys | dict.fromkeys(table.derivation.counts, LongType())
    [name] = _latest(table)
    struct = table.dtypes[name]
    assert isinstance(struct, StructType)  # noqa: S101
    return keys | {column: struct[column].dataType for column in table.shown if column not in keys}


def live_sql(table: Table) -> str:
    """The SQL condition for a stored row that exists and has no NULL in its key."""
    present = [f'"{k}" IS NOT NULL' for k in table.view.key]
    return " AND ".join([*present, *(table.view.measures[name].exists_if(name) for name in _latest(table))])


def rows_of(table: Table, states: DataFrame) -> DataFrame:
    """The rows of a table that exist and have no NULL in their keys."""
    return versions_of(table, states.where(_all([F.lit(True), *(~F.col(name)["deleted"] for name in _latest(table))])))


def versions_of(table: Table, rows: DataFrame) -> DataFrame:
    """The columns that a match may use, of rows without NULL in their keys; also of rows that are deleted."""
    latest = _latest(table)
    fields = {c: F.col(latest[0])[c] if latest and c not in table.view.key else F.col(c) for c in relation(table)}
    present = rows.where(_all(F.col(k).isNotNull() for k in table.view.key))
    return present.select(*(column.alias(name) for name, column in fields.items()))


def type_of(column: str, match: Match, tables: Mapping[str, Table]) -> DataType:
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


def _latest(table: Table) -> list[str]:
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
