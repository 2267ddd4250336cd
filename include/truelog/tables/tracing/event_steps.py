"""Event steps: the states after each of some events.

Events are ordered by their place: broker time, then topic, partition and offset. The stream may have read them in
another order, which makes no difference to its rows. After n events, step n + 1 is the state after all further events.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from truelog.tables.row_filter import RowFilter
from truelog.tables.table import Table
from truelog.tables.tracing.contributions import totals_by_record

STEP = "_step"  # column with the number of the state to which a row belongs
PLACE = "_place"
EVENT_TIME = "_event_micros"
_PLACE_TYPE = "struct<at: bigint, topic: string, partition: int, offset: bigint>"


class Place(NamedTuple):
    """An event's place in the order of events. The time is in microseconds since 1970."""

    at: int
    topic: str
    partition: int
    offset: int


def contributions(table: Table, rows: DataFrame, only: RowFilter) -> DataFrame:
    """What each record adds to the rows that `only` selects, with the record's place and time."""
    view, added = table.view, totals_by_record(table, rows, only)
    topic = F.element_at(F.array(*map(F.lit, view.reads)), F.col("_topic") + 1)
    place = F.struct(F.unix_micros("_broker_time").alias("at"), topic.alias("topic"), "_partition", "_offset")
    times = place.cast(_PLACE_TYPE).alias(PLACE), F.unix_micros("_event_time").alias(EVENT_TIME)
    return added.select(*times, *view.key, *view.measures)


@dataclass(frozen=True)
class EventSteps:
    """The steps after events at these places, which are in order."""

    spark: SparkSession
    places: Sequence[Place]

    @property
    def numbers(self) -> range:
        return range(1, len(self.places) + 2)

    @cached_property
    def _frame(self) -> DataFrame:
        return self.spark.createDataFrame(list(enumerate(self.places, 1)), f"{STEP} int, {PLACE} {_PLACE_TYPE}")

    @cached_property
    def _places(self) -> DataFrame:
        return self.spark.createDataFrame([(list(self.places),)], f"_places array<{_PLACE_TYPE}>")

    @cached_property
    def _numbers(self) -> DataFrame:
        return self.spark.createDataFrame([(number,) for number in self.numbers], f"{STEP} int")

    def at_events(self, added: DataFrame) -> DataFrame:
        """The contributions of these events, each with the event's step."""
        return added.join(F.broadcast(self._frame), PLACE)

    def first_steps(self, added: DataFrame) -> DataFrame:
        """All contributions, each with the first step that contains it."""
        step = F.size(F.filter("_places", lambda place: place < F.col(PLACE))) + 1
        return added.crossJoin(F.broadcast(self._places)).withColumn(STEP, step).drop("_places")

    def states(self, table: Table, added: DataFrame) -> DataFrame:
        """The states of a table after each step. `table` has the step in its key."""
        names = (*(name for name in table.view.key if name != STEP), *table.view.measures)
        by_step = table.plus(self.first_steps(added).select(STEP, *names)).withColumnRenamed(STEP, "_since")
        contained = by_step.join(F.broadcast(self._numbers), F.col("_since") <= F.col(STEP))
        return table.plus(contained.select(STEP, *names))
