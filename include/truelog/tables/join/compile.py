"""Compiles the tables of a Join. A table of counts has the tables whose rows it matches, and its rows in Spark."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, IntegerType, LongType, StructType

from truelog.measures.columns import ColumnTypes
from truelog.support.errors import BadDeclaration
from truelog.tables.added.compile import compile_added
from truelog.tables.compiled_view import Compiling
from truelog.tables.fingerprint import declared_parts, of_parts
from truelog.tables.table import KEY_BYTES, Table
from truelog.views.join import Join, Match, Totals, counted, split
from truelog.views.view import View


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


def side_tables(join: Join) -> dict[str, View]:
    """The side tables of a Join: each follows only from events and from tables before it."""
    sides = {name: replace(side, allowed_lateness=join.allowed_lateness) for name, side in join.sides.items()}
    return sides | {name: _of_totals(join, each) for name, each in join.totals.items()}


def _of_totals(join: Join, totals: Totals) -> View:
    return View(
        reads=join.reads,
        transform=join.transform,
        key=totals.key,
        measures=counted(totals.counts),
        columns=totals.columns,
        indexes=totals.indexes,
    )


def compile_joined(compiling: Compiling) -> Table:
    """Compile a table of a Join: a side, to which events are added, or a table of counts.

    Raises:
        BadDeclaration: a match names a table or a column that does not exist, or connects different types.
    """
    join, side = compiling.view, compiling.side
    counts = {"": join.counts, **{name: each.counts for name, each in join.totals.items()}}
    if side in counts:
        compiled = _compile_counts(compiling.name, compiling.table, counts[side], compiling.earlier)
    else:
        compiled = compile_added(compiling)
    return replace(compiled, text_bytes=text_bytes(join), matched=matched(join, side))


def _compile_counts(name: str, view: View, counts: Mapping[str, Match], earlier: Sequence[Table]) -> Table:
    """A table of counts, whose key columns have the types of the columns that they come from."""
    known = {each.side: each for each in earlier}
    used = {match.table(name) for match in counts.values() for name in match.tables}
    if missing := sorted(used - known.keys()):
        raise BadDeclaration(f"{name}: a match uses {', '.join(missing)}, but the tables before it are {[*known]}.")
    joined = Joined(counts, {table: known[table] for table in known if table in used})
    keys = [{k: type_of(match.key[k], match, joined.tables) for k in view.key} for match in counts.values()]
    if any(each != keys[0] for each in keys):
        raise BadDeclaration(f"{name}: the matches disagree about the types of the key columns {view.key}.")
    for match in counts.values():
        _require_types(name, match, joined)
    dtypes = keys[0] | dict.fromkeys(counts, IntegerType())
    made_by = of_parts(*declared_parts(view), repr(dict(counts)))
    return Table(name, view, dtypes, made_by, scans=0, derivation=joined)


def _require_types(name: str, match: Match, joined: Joined) -> None:
    for one, other in match.on:
        if type_of(one, match, joined.tables) != type_of(other, match, joined.tables):
            raise BadDeclaration(f"{name}: {one} and {other} have different types.")
    for column in (*match.key.values(), *(one for one, _ in match.on)):
        if not isinstance(type_of(column, match, joined.tables), ColumnTypes.ORDERED):
            raise BadDeclaration(f"{name}: no index of PostgreSQL can contain every value of {column}; cast it.")
    for column, _, _ in match.where:
        if not isinstance(type_of(column, match, joined.tables), ColumnTypes.WHOLE):
            raise BadDeclaration(f"{name}: {column} is compared with a whole number, but it is not a whole number.")


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
    for one, other in match.on:
        if split(one)[0] == split(other)[0]:  # no join compares them
            frame = frame.where(F.col(one) == F.col(other))
    for column, operator, value in match.where:
        frame = frame.where(F.expr(f"{column} {operator} {value}"))
    return frame
