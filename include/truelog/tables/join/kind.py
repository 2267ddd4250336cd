"""The kind of a Join: its rows count matches of the tables that it owns, and change by the difference."""

from collections.abc import Mapping
from typing import Any

from truelog.storage.database import Connection
from truelog.tables.compiled_view import CompiledView, Compiling
from truelog.tables.join import merge
from truelog.tables.join.compile import Joined, compile_joined, side_tables
from truelog.tables.join.repair import repair_tables
from truelog.tables.join.trace import trace_join
from truelog.tables.kind import Kind, Repair
from truelog.tables.stage import StagedRows
from truelog.tables.table import Table
from truelog.tables.tracing.trace import Trace, Tracing
from truelog.views import join
from truelog.views.view import View


class Join(Kind):
    """A batch changes the tables of counts by what follows from its changes of the sides."""

    def is_declared_by(self, view: View) -> bool:
        return isinstance(view, join.Join)

    def side_tables(self, view: Any) -> Mapping[str, View]:
        return side_tables(view)

    def compile(self, compiling: Compiling) -> Table:
        return compile_joined(compiling)

    def is_kind_of(self, table: Table) -> bool:
        return isinstance(table.derivation, Joined)

    def repair(self, repair: Repair) -> int:
        return repair_tables(repair)

    def trace(self, tracing: Tracing) -> Trace:
        return trace_join(tracing)

    def create(self, connection: Connection, compiled: CompiledView) -> None:
        merge.create(connection, compiled)

    def add_batch(self, connection: Connection, compiled: CompiledView, staged: StagedRows) -> None:
        merge.add_batch(connection, compiled, staged)
