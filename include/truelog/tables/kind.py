"""Kind: how the rows of a table come about.

Events are added to the tables of a view, or the rows of a table follow from other tables of the view. Each kind has a
folder and is listed once, in `kinds.py`. Everything above `tables/` calls these verbs and asks for no kind.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from pyspark.sql import DataFrame, SparkSession

from truelog.log.records import EventFrames
from truelog.storage.database import Connection
from truelog.support.settings import Settings
from truelog.tables import stage
from truelog.tables.compiled_view import CompiledView, RowFilter
from truelog.tables.stage import NO_ROWS, StagedRows


class Source(Protocol):
    """Where a rebuild gets its rows: the log up to some positions, or what has been summed up from it."""

    def states(self, table: CompiledView) -> DataFrame:
        """The states of another table of the view."""

    def summed(self, table: CompiledView, only: RowFilter) -> DataFrame:
        """The states of a table to which events are added, limited to the rows that `only` selects."""

    def remembered(self, table: CompiledView) -> EventFrames:
        """The events that may still have copies."""


class Kind:
    """The kind of a table to which events are added. Other kinds replace what differs."""

    def is_kind_of(self, compiled: CompiledView) -> bool:
        """Whether the table is of this kind, which is the last to be asked."""
        return True

    def follows_from(self, compiled: CompiledView) -> Sequence[CompiledView]:
        """The tables from which the rows of the table follow, instead of events."""
        return ()

    def states(self, compiled: CompiledView, source: Source, only: RowFilter) -> DataFrame:
        """The table as states, one row for each key that `only` selects."""
        return source.summed(compiled, only)

    def create(self, connection: Connection, compiled: CompiledView) -> None:
        """Create what the kind needs beside the tables, in the transaction that creates them."""

    def follow(
        self, spark: SparkSession, compiled: CompiledView, settings: Settings, staged: Mapping[str, StagedRows]
    ) -> StagedRows:
        """Stage the rows that follow from a batch's staged rows of the sources, by the name of the side table.

        `staged` contains the rows of the view's own table under "", if events are added to it.
        """
        return staged.get("", NO_ROWS)

    def add_batch(self, connection: Connection, compiled: CompiledView, staged: StagedRows) -> None:
        """Add a batch's staged rows to the tables of the stream, and change what follows from them."""
        self.add(connection, compiled, "state", staged)

    def add(self, connection: Connection, compiled: CompiledView, schema: str, staged: StagedRows) -> None:
        """Add staged rows of all tables to the tables in `schema`."""
        for each, rows in staged.by_table(compiled):
            stage.add(connection, each, schema, rows)
