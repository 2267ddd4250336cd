"""Fold: how the rows of a table follow from the inputs of a Group."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame

from truelog.tables.compiled_view import CompiledView
from truelog.tables.table import Table
from truelog.views.group import CHECKPOINTS, Group


@dataclass(frozen=True)
class Fold:
    """A compiled fold. Tables with the same `run` follow from one fold.

    inputs: the side table with the inputs.
    run: inputs → the result of the fold.
    rows: the result of the fold → the rows of the table.
    """

    inputs: Table
    run: Callable[[DataFrame], DataFrame]
    rows: Callable[[DataFrame], DataFrame]

    @property
    def follows_from(self) -> Sequence[Table]:
        return (self.inputs,)

    def states(self, table: Table, states_of: Callable[[Table], DataFrame]) -> DataFrame:
        return self.folded(table, self.inputs.stored(states_of(self.inputs)))

    def folded(self, table: Table, inputs: DataFrame) -> DataFrame:
        """Whole groups of stored inputs → the states of the table's rows."""
        return self.rows_of(table, self.run(inputs))

    def rows_of(self, table: Table, folded: DataFrame) -> DataFrame:
        """The result of the fold → the states of the table's rows."""
        return table.prepared(self.rows(folded))


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
