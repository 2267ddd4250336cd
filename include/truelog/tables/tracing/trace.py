"""The trace of a row: the contributions of events from which it follows, and the row after each step."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from pyspark.sql import DataFrame

from truelog.tables.compiled_view import CompiledView
from truelog.tables.row_filter import RowFilter
from truelog.tables.table import Table
from truelog.tables.tracing.event_steps import EventSteps

REASON = "_reason"


@dataclass(frozen=True)
class TracedTable:
    """A table to which events add, the contributions from which the row follows, and those of the listed events."""

    table: Table
    added: DataFrame
    listed: DataFrame


@dataclass(frozen=True)
class Trace:
    """The tables behind a row, and a function from steps to the states of the row after each of them.

    `refused` has the place of each event that changes nothing, because its thing has another owner. `refusal` names the
    column of a row that says why the last event changed nothing.
    """

    tables: Sequence[TracedTable]
    rows: Callable[[EventSteps], DataFrame]
    refused: DataFrame | None = None  # with the columns PLACE and REASON
    refusal: str | None = None


class Tracing(Protocol):
    """The search for the events behind a row of a view."""

    @property
    def compiled(self) -> CompiledView: ...

    @property
    def key(self) -> DataFrame:
        """The values of key columns that the row has, as a frame of one row."""

    @property
    def only(self) -> RowFilter:
        """A filter for the rows with these values."""

    def transformed_rows(self, table: Table) -> DataFrame:
        """The rows that the transform of a table selects from the log, each with its record."""

    def kept(self, frames: Iterable[DataFrame]) -> list[DataFrame]:
        """The same frames, which have rows of the log and are read often. Few rows are computed at once."""

    def computed(self, frames: Iterable[DataFrame]) -> list[DataFrame]:
        """The same rows, computed at once by one plan.

        What follows from them does not analyse again how they were found.
        """
