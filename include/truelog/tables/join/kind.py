"""The kind of a Join: its rows count matches of the tables that it owns, and change by the difference."""

from collections.abc import Sequence

from pyspark.sql import DataFrame

from truelog.storage.database import Connection
from truelog.tables.compiled_view import CompiledView, RowFilter
from truelog.tables.join import merge
from truelog.tables.join.merge import joined_of
from truelog.tables.join.repair import repair_tables
from truelog.tables.join.trace import trace_join
from truelog.tables.kind import Kind, Repair, Source
from truelog.tables.stage import StagedRows
from truelog.tables.trace import Trace, Tracing


class Join(Kind):
    """A batch changes the tables of counts by what follows from its changes of the sides."""

    def is_kind_of(self, compiled: CompiledView) -> bool:
        return compiled.joined is not None

    def follows_from(self, compiled: CompiledView) -> Sequence[CompiledView]:
        return [*joined_of(compiled).tables.values()]

    def states(self, compiled: CompiledView, source: Source, only: RowFilter) -> DataFrame:
        return only(joined_of(compiled).rows(compiled.view.key, source.states))

    def repair(self, repair: Repair) -> int:
        return repair_tables(repair)

    def trace(self, tracing: Tracing) -> Trace:
        return trace_join(tracing)

    def create(self, connection: Connection, compiled: CompiledView) -> None:
        merge.create(connection, compiled)

    def add_batch(self, connection: Connection, compiled: CompiledView, staged: StagedRows) -> None:
        merge.add_batch(connection, compiled, staged)
