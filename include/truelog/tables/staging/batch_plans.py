"""How a batch's rows get into the staging tables: by plans that Spark makes for this batch.

`RepeatedPlans` has the same verbs, and makes its plans once for all small batches.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from psycopg import sql
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from truelog.log import records
from truelog.log.records import Coordinates, EventFrames
from truelog.support.settings import Settings
from truelog.tables import stage
from truelog.tables.dedupe import compile as copies
from truelog.tables.dedupe.compile import LogTimes
from truelog.tables.stage import StagedRows
from truelog.tables.table import Table


@dataclass
class BatchPlans:
    """Stages rows in this session."""

    spark: SparkSession
    settings: Settings

    def stage(self, table: Table, states: Callable[[], DataFrame]) -> StagedRows:
        """Load the states of one table into its staging table."""
        return stage.stage_rows(states(), table, self.settings)

    def stage_each(
        self,
        tables: Iterable[Table],
        common: Callable[[], DataFrame],
        states: Callable[[Table, DataFrame], DataFrame],
    ) -> list[StagedRows]:
        """Load the states of several tables that all follow from the frame `common`."""
        tables, shared = list(tables), common()
        if len(tables) > 1:
            shared.persist()
        try:
            return [self.stage(table, partial(states, table, shared)) for table in tables]
        finally:
            shared.unpersist()

    def timed(self, events: EventFrames, before: LogTimes) -> EventFrames:
        """A batch's events with their log times as broker times. `before` has the log times of earlier events."""
        return copies.timed(events, before)

    @contextmanager
    def without(self, events: EventFrames, found: Collection[Coordinates]) -> Iterator[EventFrames]:
        """A batch's events without the records at these coordinates, during the block."""
        yield records.without_records(events, found)

    def tasks(self, rows: int, rows_per_task: int) -> int:
        """In how many tasks to load so many rows from PostgreSQL."""
        return max(1, min(self.spark.sparkContext.defaultParallelism, rows // rows_per_task))

    def load(self, queries: Sequence[sql.Composed], schema: StructType) -> DataFrame:
        """The rows that these queries select, each loaded by a task of its own. They look rows up by index."""
        return stage.load(self.spark, self.settings, [each.as_string(None) for each in queries], schema)
