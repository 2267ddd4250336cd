"""The kind of the side table `seen`: a row for each event that may still have copies."""

from pyspark.sql import DataFrame

from truelog.storage.database import Connection
from truelog.tables import stage
from truelog.tables.compiled_view import CompiledView, RowFilter
from truelog.tables.dedupe.compile import SEEN
from truelog.tables.kind import Kind, Source


class Seen(Kind):
    """The rows of the last events of each partition."""

    def is_kind_of(self, compiled: CompiledView) -> bool:
        return compiled.side == SEEN

    def is_chained(self) -> bool:
        """The log time of an event follows from the events before it."""
        return True

    def states(self, compiled: CompiledView, source: Source, only: RowFilter) -> DataFrame:
        return compiled.totals_of(source.remembered(compiled), only)

    def create(self, connection: Connection, compiled: CompiledView) -> None:
        """Let the executors look for earlier events."""
        stage.grant(connection, compiled)
