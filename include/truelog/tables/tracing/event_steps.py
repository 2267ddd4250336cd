"""Event steps: the states after each of some events.

Events are ordered by their place: broker time, then topic, partition and offset. The stream may have read them in
another order, which makes no difference to its rows. After n events, step n + 1 is the state after all further events.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import msgspec
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, IntegerType, LongType, StringType, StructType

from truelog.tables.row_filter import RowFilter
from truelog.tables.table import Table
from truelog.tables.tracing.contributions import totals_by_record

STEP = "_step"  # column with the number of the state to which a row belongs
PLACE = "_place"
EVENT_TIME = "_event_micros"
_PLACE = (
    StructType()
    .add("at", LongType())
    .add("topic", StringType())
    .add("partition", IntegerType())
    .add("offset", LongType())
)


class Place(NamedTuple):
    """An event's place in the order of events. The time is in microseconds since 1970."""

    at: int
    topic: str
    partition: int
    offset: int


def contributions(table: Table, rows: DataFrame, only: RowFilter) -> DataFrame:
    """What each record adds to the rows that `only` selects, with the record's place and time."""
    return placed(table, totals_by_record(table, rows, only))


def placed(table: Table, added: DataFrame) -> DataFrame:
    """What each record adds, as states with the record in the key → the same with the record's place and time."""
    view = table.view
    topic = F.element_at(F.array(*map(F.lit, view.reads)), F.col("_topic") + 1)
    place = F.struct(F.unix_micros("_broker_time").alias("at"), topic.alias("topic"), "_partition", "_offset")
    times = place.cast(_PLACE).alias(PLACE), F.unix_micros("_event_time").alias(EVENT_TIME)
    return added.select(*times, *view.key, *view.measures)


@dataclass(frozen=True)
class EventSteps:
    """The steps after events at these places, which are in order."""

    places: Sequence[Place]

    @property
    def numbers(self) -> range:
        return range(1, len(self.places) + 2)

    def at_events(self, added: DataFrame) -> DataFrame:
        """The contributions of these events, each with the event's step."""
        return self.numbered(added).where(F.col(STEP) > 0)

    def numbered(self, added: DataFrame) -> DataFrame:
        """All contributions, each with the event's step; 0 for other events."""
        return added.withColumn(STEP, F.array_position(self._places, F.col(PLACE)).cast(IntegerType()))

    def first_steps(self, added: DataFrame) -> DataFrame:
        """All contributions, each with the first step that contains it."""
        return added.withColumn(STEP, F.size(F.filter(self._places, lambda place: place < F.col(PLACE))) + 1)

    def states(self, table: Table, added: DataFrame) -> DataFrame:
        """The states of a table after each step. `table` has the step in its key."""
        names = (*(name for name in table.view.key if name != STEP), *table.view.measures)
        by_step = table.plus(self.first_steps(added).select(STEP, *names)).withColumnRenamed(STEP, "_since")
        later = F.explode(F.sequence("_since", F.lit(self.numbers[-1]))).alias(STEP)
        return table.plus(by_step.select(later, *names))

    @cached_property
    def _places(self) -> Column:
        """The places as a constant. Joins with a frame of them would need shuffles."""
        text = msgspec.json.encode([each._asdict() for each in self.places]).decode()
        return F.from_json(F.lit(text), ArrayType(_PLACE))
