"""The kind of the side table `seen`: a row for each event that may still have copies."""

from collections.abc import Mapping

from pyspark.sql import DataFrame

from truelog.tables.dedupe.compile import SEEN, seen_table
from truelog.tables.kind import Kind, Source
from truelog.tables.row_filter import RowFilter
from truelog.tables.table import Table
from truelog.views.view import View


class Seen(Kind):
    """The rows of the last events of each partition."""

    def is_declared_by(self, view: View) -> bool:
        return False

    def further_side_tables(self, view: View) -> Mapping[str, View]:
        return {SEEN: seen_table(view)} if view.dedupe else {}

    def is_kind_of(self, table: Table) -> bool:
        return table.side == SEEN

    def is_chained(self) -> bool:
        """The log time of an event follows from the events before it."""
        return True

    def is_daily(self) -> bool:
        """The rows of a log day expire with later events."""
        return False

    def states(self, table: Table, source: Source, only: RowFilter) -> DataFrame:
        return table.totals_of(source.remembered(table), only)
