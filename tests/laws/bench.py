"""Bench: a view for one test, with batches and merges for that view."""

import uuid
from dataclasses import dataclass

from psycopg import sql
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from tests.beds.lab import Lab
from tests.laws.events import START
from truelog import Sum, View
from truelog.kernel import merge
from truelog.kernel.apply_batch import BatchApplier, EventRange
from truelog.kernel.merge import Merge
from truelog.log import records
from truelog.log.positions import Positions
from truelog.tables import deploy as table
from truelog.tables import kinds, stage
from truelog.tables.compiled_view import CompiledView
from truelog.tables.kinds import Batch


def _per_minute(page_view: DataFrame) -> DataFrame:
    return page_view.select(F.date_trunc("minute", "event_time").alias("minute"), F.lit(1).alias("views"))


PER_MINUTE = View(reads=("page_view",), transform=_per_minute, key=("minute",), measures={"views": Sum()})


@dataclass
class Bench:
    """A view for one test, and batches for that view."""

    lab: Lab
    compiled: CompiledView

    def at(self, offset: int) -> Positions:
        return Positions({"page_view": {0: offset}}, {"page_view": "an-id"})

    def events(self, start: int, end: int) -> dict[str, DataFrame]:
        """One event per second. An event's offset is its number."""
        seconds = F.timestamp_seconds(F.lit(START.timestamp()).cast("bigint") + F.col("id"))
        kinds = {"offset": F.col("id"), "partition": F.lit(0), "topic": F.lit("page_view"), "event_time": seconds}
        return {"page_view": shaped(self.lab, self.lab.spark.range(start, end), "page_view", kinds)}

    def staged(self, start: int, end: int) -> stage.StagedRows:
        return kinds.stage_batch(
            self.lab.connection, self.compiled, self.lab.plans, Batch(self.events(start, end), {("page_view", 0)})
        )

    @property
    def applier(self) -> BatchApplier:
        return BatchApplier(self.lab.settings)

    def apply(self, start: int, end: int) -> None:
        batch = Merge(self.at(start), self.at(end), self.staged(start, end))
        merge.apply(self.lab.connection, self.compiled, batch)

    def apply_batch(self, start: int, end: int) -> None:
        """Apply a batch the way a stream does: without the records on which the transform fails."""
        batch = EventRange(self.events(start, end), self.at(start), self.at(end))
        self.applier.apply(self.lab.connection, self.compiled, batch, self.at(start))

    def counted(self) -> int:
        query = sql.SQL("SELECT coalesce(sum(views), 0)::bigint FROM {}")
        row = self.lab.connection.execute(query.format(sql.Identifier("state", self.compiled.own.name))).fetchone()
        assert row is not None
        return int(str(row[0]))

    def excluded(self) -> list[object]:
        query = 'SELECT "offset" FROM truelog.exclusion WHERE view = %s ORDER BY 1'
        return [offset for (offset,) in self.lab.connection.execute(query, (self.compiled.name,)).fetchall()]

    def offset(self) -> int:
        return merge.positions(self.lab.connection, self.compiled).at("page_view", 0)


def shaped(lab: Lab, frame: DataFrame, topic: str, columns: dict[str, Column]) -> DataFrame:
    shape: StructType = records.schema(lab.types[topic])
    return frame.select(*(columns.get(f.name, F.lit(None)).cast(f.dataType).alias(f.name) for f in shape))


def make_bench(lab: Lab, view: View) -> Bench:
    compiled = lab.compiled_once(f"v{uuid.uuid4().hex[:8]}", view)
    table.deploy_table(lab.connection, compiled)
    return Bench(lab, compiled)


def starting(selected: Column | str) -> View:
    """A view keyed by a value that may be hostile."""

    def transform(page_view: DataFrame) -> DataFrame:
        start = F.expr(selected) if isinstance(selected, str) else selected
        return page_view.select(start.alias("start"), F.lit(1).alias("views"))

    return View(reads=("page_view",), transform=transform, key=("start",), measures={"views": Sum()})
