"""The trace of a row: the contributions of events from which it follows, and the row after each step."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from pyspark.sql import DataFrame

from truelog.tables.compiled_view import CompiledView
from truelog.tables.row_filter import RowFilter
from truelog.tables.table import Table
from truelog.tables.tracing.event_steps import EventSteps

REASON = "_reason"

_T = TypeVar("_T")


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

    def kept(self, make: Callable[[_T], DataFrame], of: Iterable[_T]) -> list[DataFrame]:
        """The frame that `make` returns for each item. It has rows of the log and is read often.

        Few rows are computed at once, as by `computed`.
        """

    def computed(self, make: Callable[[_T], DataFrame], of: Iterable[_T]) -> list[DataFrame]:
        """The rows of the frame that `make` returns for each item, computed at once. `make` may run in other threads.

        What follows from them does not analyse again how they were found.
        """
