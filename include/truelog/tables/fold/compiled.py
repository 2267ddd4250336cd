"""Fold: how the rows of a table follow from the inputs of a Group."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, DateType, TimestampType

from truelog.tables.compiled_view import CompiledView
from truelog.tables.staging.failed_group import FailedGroup
from truelog.tables.table import Table
from truelog.views.group import CHECKPOINTS, Group

_TWO_ROWS = "the fold makes two rows with one key"


@dataclass(frozen=True)
class Fold:
    """A compiled fold. Tables with the same `run` follow from one fold.

    inputs: the side table with the inputs.
    by: the columns of a group.
    run: inputs → the result of the fold.
    rows: the result of the fold → the rows of the table, whose keys may not be unique.
    failed: the groups that are left out.
    since: groups of earlier times have expired and are not folded; None if the table has no `keep` or no clock yet.
    first: columns that order inputs. A group with too many is folded from the first; empty: it has no rows.
    """

    inputs: Table
    by: tuple[str, ...]
    run: Callable[[DataFrame], DataFrame]
    rows: Callable[[DataFrame], DataFrame]
    failed: tuple[FailedGroup, ...] = ()
    since: datetime | None = None
    first: tuple[str, ...] = ()

    @property
    def follows_from(self) -> Sequence[Table]:
        return (self.inputs,)

    def states(self, table: Table, states_of: Callable[[Table], DataFrame]) -> DataFrame:
        return self.folded(table, self.inputs.stored(states_of(self.inputs)))

    def folded(self, table: Table, inputs: DataFrame) -> DataFrame:
        """Whole groups of stored inputs → the states of the table's rows."""
        return self.rows_of(table, self.result(inputs))

    def result(self, inputs: DataFrame) -> DataFrame:
        """Whole groups of stored inputs → the result of the fold, without groups that expired or are left out."""
        if self.since is not None and self.inputs.age_column is not None:
            inputs = inputs.where(F.coalesce(F.col(self.inputs.age_column) >= F.lit(self.since), F.lit(True)))
        if self.failed:
            values = values_of(self.inputs, self.by)
            inputs = inputs.where(~values.isin(*(each.values for each in self.failed)))
        return self.run(inputs)

    def rows_of(self, table: Table, folded: DataFrame) -> DataFrame:
        """The result of the fold → the states of the table's rows. It fails on two rows with one key."""
        rows = self.rows(folded)
        # The columns of `by` are as they are, because Spark keeps groups together by them and need not move the rows.
        key = [*map(F.col, self.by), *(table.canonical_key(name) for name in table.view.key[len(self.by) :])]
        copies = F.count(F.lit(1)).over(Window.partitionBy(*key))
        is_only = F.when(F.col("_copies") == 1, F.lit(True)).otherwise(F.raise_error(F.lit(_TWO_ROWS)))
        return table.prepared(rows.withColumn("_copies", copies).where(is_only))


def values_of(inputs: Table, by: Sequence[str]) -> Column:
    """The values of a group as text. PostgreSQL makes an equal array (`merge._values`)."""
    return F.to_json(F.array(*(_as_text(F.col(name), inputs.dtypes[name]) for name in by)))


def _as_text(value: Column, dtype: DataType) -> Column:
    """A value as text. PostgreSQL writes times in a form of its own, so they are numbers."""
    if isinstance(dtype, TimestampType):
        value = F.unix_micros(value)
    elif isinstance(dtype, DateType):
        value = F.unix_date(value)
    return value.cast("string")


def fold_of(table: Table) -> Fold:
    """The fold that makes the rows of a table."""
    assert isinstance(table.derivation, Fold)  # noqa: S101
    return table.derivation


def group_of(compiled: CompiledView) -> Group:
    """The declaration of a Group."""
    assert isinstance(compiled.view, Group)  # noqa: S101
    return compiled.view


def inputs_of(compiled: CompiledView) -> Table:
    """The side table with the inputs of a Group."""
    return fold_of(compiled.own).inputs


def checkpoints_of(compiled: CompiledView) -> Table | None:
    """The side table with the checkpoints of a Group of steps."""
    return next((each for each in compiled.sides if each.side == CHECKPOINTS), None)


def folded_tables(compiled: CompiledView) -> tuple[Table, ...]:
    """The tables of a Group that are folded from its inputs, all by the same fold."""
    return tuple(each for each in compiled.tables if isinstance(each.derivation, Fold))
