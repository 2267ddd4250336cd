"""Kind: how the rows of a table come about.

Events are added to the tables of a view, or the rows of a table follow from other tables of the view. Each kind has a
folder and is listed once, in `kinds.py`. Everything above `tables/` calls these verbs and asks for no kind.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any, Protocol, TypeVar

from psycopg import sql
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import IntegerType

from truelog.log.records import EventFrames
from truelog.storage.database import Connection
from truelog.support.settings import Settings
from truelog.tables import stage
from truelog.tables.added.compile import compile_added
from truelog.tables.compiled_view import CompiledView, Compiling
from truelog.tables.output import changes
from truelog.tables.row_filter import RowFilter
from truelog.tables.stage import NO_ROWS, StagedRows
from truelog.tables.staging.batch_plans import BatchPlans
from truelog.tables.staging.failed_group import FailedGroup
from truelog.tables.table import Table
from truelog.tables.tracing.event_steps import STEP, contributions
from truelog.tables.tracing.trace import Trace, TracedTable, Tracing
from truelog.views.view import View

_T = TypeVar("_T")


class Source(Protocol):
    """Where a rebuild gets its rows: the log up to some positions, or what has been summed up from it."""

    def states(self, table: Table) -> DataFrame:
        """The states of another table of the view."""

    def summed(self, table: Table, only: RowFilter) -> DataFrame:
        """The states of a table to which events are added, limited to the rows that `only` selects."""

    def remembered(self, table: Table) -> EventFrames:
        """The events that may still have copies."""


class Repair(Protocol):
    """The repair of a view: its differing rows, and the verbs that change them and store them before and after."""

    @property
    def connection(self) -> Connection: ...

    @property
    def compiled(self) -> CompiledView: ...

    @property
    def spark(self) -> SparkSession: ...

    @property
    def settings(self) -> Settings: ...

    def keys(self, table: Table) -> sql.Composed:
        """The query of the keys of a table's differing rows."""

    def add_keys(self, table: Table, keys: sql.Composable) -> None:
        """Let the rows with these keys count as differing."""

    def differs(self, table: Table) -> bool:
        """Whether a table to which events are added has differing rows."""

    def replace(self, table: Table) -> int:
        """Replace the differing rows of a table to which events are added. Return how many rows changed."""

    def record_before(self, table: Table) -> None:
        """Store the differing rows of a table before another change."""

    def record_after(self, table: Table) -> int:
        """Store these rows after the change. Return how many rows changed."""

    def locked(self) -> AbstractContextManager[None]:
        """A transaction that no merge of the view interrupts."""

    def merge(self, staged: StagedRows) -> None:
        """Merge staged rows into the view's tables."""


class Kind:
    """The kind of a table to which events are added. Other kinds replace what differs."""

    def is_declared_by(self, view: View) -> bool:
        """Whether the view's own table is of this kind, which is the last to be asked. It then compiles all tables."""
        return True

    def side_tables(self, view: Any) -> Mapping[str, View]:
        """The side tables of a view of this kind, by name: each follows only from events and from tables before it."""
        return {}

    def further_side_tables(self, view: View) -> Mapping[str, View]:
        """The side tables of this kind that a view has whatever its own kind is."""
        return {}

    def rows_of_records(self, view: Any) -> Mapping[str, tuple[str, ...]]:
        """The side tables with a row for each record, and the columns that identify a row to readers."""
        return {}

    def compile(self, compiling: Compiling) -> Table:
        """Compile a table of a view of this kind.

        Raises:
            BadDeclaration: the declaration has an error.
        """
        return compile_added(compiling)

    def is_kind_of(self, table: Table) -> bool:
        """Whether the table is of this kind, which is the last to be asked."""
        return True

    def states(self, table: Table, source: Source, only: RowFilter) -> DataFrame:
        """The table as states, one row for each key that `only` selects."""
        if table.derivation is not None:
            return only(table.derivation.states(table, source.states))
        return source.summed(table, only)

    def trace(self, tracing: Tracing) -> Trace:
        """The contributions with the row's key, which add up to the row."""
        table = tracing.compiled.own
        [added] = tracing.computed(
            lambda each: contributions(each, tracing.transformed_rows(each), tracing.only), [table]
        )
        by_step = table.with_key(STEP, IntegerType())
        return Trace([TracedTable(table, added, added)], lambda steps: steps.states(by_step, added))

    def is_chained(self) -> bool:
        """Whether a row follows from earlier rows of the same table."""
        return False

    def is_daily(self) -> bool:
        """Whether the states of single log days add up to those of the table, if events are added to it."""
        return True

    def repair(self, repair: Repair) -> int:
        """Replace the differing rows, in a transaction that no merge interrupts. Return how many rows changed."""
        return sum(repair.replace(each) for each in repair.compiled.sources if repair.differs(each))

    def repair_following(self, repair: Repair) -> int:
        """Repair what follows from the repaired tables, if it needs a transaction of its own."""
        return 0

    def create(self, connection: Connection, compiled: CompiledView) -> None:
        """Create what the kind needs beside the tables, in the transaction that creates them."""

    def leaving_out_failures(
        self,
        compiled: CompiledView,
        states: Callable[[Table], DataFrame],
        attempt: Callable[[CompiledView], _T],
    ) -> _T:
        """Run `attempt` with the view, or with a view that leaves out the groups on which a fold fails.

        `states` rebuilds a table from which the rows follow.
        """
        return attempt(compiled)

    def without_expired(self, compiled: CompiledView, limit: datetime | None) -> CompiledView:
        """The view, which computes nothing for rows before this time if it can leave them out."""
        return compiled

    def forget_expired(self, connection: Connection, compiled: CompiledView, limit: datetime) -> None:
        """Delete what is recorded about groups before this time, whose rows have expired."""

    def failed_groups(self, compiled: CompiledView) -> tuple[FailedGroup, ...]:
        """The groups that the view leaves out."""
        return ()

    def follow(self, plans: BatchPlans, compiled: CompiledView, staged: Mapping[str, StagedRows]) -> StagedRows:
        """Stage the rows that follow from a batch's staged rows of the sources, by the name of the side table.

        `staged` contains the rows of the view's own table under "", if events are added to it.
        """
        return staged.get("", NO_ROWS)

    def add_batch(self, connection: Connection, compiled: CompiledView, staged: StagedRows) -> None:
        """Add a batch's staged rows to the tables of the stream, and change what follows from them."""
        self.add(connection, compiled, "state", staged)

    def changes(self, table: Table) -> sql.Composed:
        """The query of the rows that readers see and that the transaction has changed or removed: key and value."""
        return changes.changed_rows(table)

    def add(self, connection: Connection, compiled: CompiledView, schema: str, staged: StagedRows) -> None:
        """Add staged rows of all tables to the tables in `schema`."""
        for each, rows in staged.by_table(compiled):
            stage.add(connection, each, schema, rows)
