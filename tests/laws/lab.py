"""Stream and rebuild many generated logs at once, with the real code and a real database.

A Spark job takes a second regardless of its size. The case therefore becomes an additional key column, so that a few
jobs check the laws on hundreds of cases.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import product
from typing import Any

import pyarrow as pa
from hypothesis import HealthCheck, Phase, given, seed, settings
from psycopg import sql
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType

from tests.laws.events import START, Record, log
from tests.laws.with_case import with_case
from truelog.batch.batch_context import BatchContext
from truelog.kernel import clock, copies, joins, merge, stage, table, table_hash
from truelog.kernel.apply_batch import BatchApplier
from truelog.kernel.stage import StagedRows
from truelog.kernel.table_hash import TableHash
from truelog.log import records
from truelog.log.positions import Positions
from truelog.reconcile import row_diff
from truelog.reconcile.row_diff import DiffCounts
from truelog.schema.event import EventType, EventTypes
from truelog.schema.event_version import judge
from truelog.storage.database import Connection, names
from truelog.support.durations import seconds
from truelog.support.settings import Settings
from truelog.views.compiled_view import CompiledView, extend_view
from truelog.views.group import Group
from truelog.views.join import Join
from truelog.views.provenance_frame import ProvenanceFrame
from truelog.views.view import View
from truelog.views.view_compiler import compile_view

CASES = 200
PARTITIONS = 100  # of each case: its own partitions are numbered from here on


def cases(
    types: dict[str, EventType], reads: tuple[str, ...], *, number: int = CASES, **described: Any
) -> list[list[Record]]:
    """Generate `number` logs, the same in every run. `events.log` describes the other parameters."""
    drawn: list[list[Record]] = []

    @seed(20260301)
    @settings(max_examples=number, phases=[Phase.generate], database=None, suppress_health_check=list(HealthCheck))
    @given(log(types, reads, **described))
    def collect(each: list[Record]) -> None:
        drawn.append(each)

    collect()
    return drawn


def last_cut(drawn: list[list[Record]]) -> int:
    return max((record.cut for case in drawn for record in case), default=0)


def clock_after(view: View, cut: int) -> datetime:
    """The log clock after a cut. If the view has `keep`, each cut ends with a tick that expires some rows."""
    return START + timedelta(seconds=seconds(view.keep or "0 seconds") - 90 + 5 * cut)


@dataclass
class Lab:
    """Runs generated logs through a view."""

    spark: SparkSession
    settings: Settings
    connection: Connection
    types: dict[str, EventType]

    @property
    def context(self) -> BatchContext:
        return BatchContext(self.spark, self.settings, self.types)

    def compiled(self, name: str, view: View) -> CompiledView:
        return self.compiled_with(name, view, self.types)

    def compiled_with(self, name: str, view: View, types: EventTypes) -> CompiledView:
        return compile_view(self.spark, name, view, {n: records.schema(t) for n, t in types.items()})

    def compare_all(self, name: str, view: View, drawn: list[list[Record]]) -> DiffCounts:
        """Stream every case batch by batch, rebuild it in one step and count the differences between the tables."""
        if isinstance(view, Group | Join) or view.dedupe:
            return self._compare_merged(name, view, drawn)
        plain = self.compiled(name, view)
        by_case = replace(extend_view(plain, "case_id", IntegerType()), name=f"{name}_by_case")
        by_cut = replace(extend_view(by_case, "cut", IntegerType()), name=f"{name}_by_cut")
        for each in (by_case, by_cut):
            self._fresh(each)
        rows = self.transformed(view, drawn).persist()
        stage.stage_rows(by_cut.totals(rows), by_cut, self.settings)
        end = last_cut(drawn)
        self._tick(by_case, end)
        self._stream(by_case, by_cut, end)
        merge.add(self.connection, by_case, "recon", stage.stage_rows(by_case.totals(rows), by_case, self.settings))
        merge.drop_expired(self.connection, by_case, "recon", _reached(by_case, end))
        rows.unpersist()
        return row_diff.find_differences(self.connection, by_case)

    def _compare_merged(self, name: str, view: View, drawn: list[list[Record]]) -> DiffCounts:
        """Like `compare_all`, with a merge of each cut as in production."""
        compiled = self.compiled(f"{name}_by_case", with_case(view))
        self._fresh(compiled)
        events = {topic: self.events(topic, drawn).persist() for topic in view.reads}
        applier = BatchApplier(self.settings)
        for cut in range(last_cut(drawn) + 1):
            of_cut = {topic: frame.where(F.col("cut") == cut) for topic, frame in events.items()}
            places = {(r.topic, place(n, r)) for n, case in enumerate(drawn) for r in case if r.cut == cut}
            staged = applier.stage_totals(self.connection, compiled, of_cut, places)
            merge.add_batch(self.connection, compiled, staged)
            merge.drop_expired(self.connection, compiled, "state", _touching(places))
        self._copy_streamed(compiled)
        rebuilt = stage.stage_tables(
            compiled, lambda table: table.totals_of(copies.countable(table, events)), self.settings
        )
        merge.add(self.connection, compiled, "recon", rebuilt)
        own, *sides = (row_diff.find_differences(self.connection, each) for each in compiled.tables)
        assert not any(each.unequal for each in sides)
        return own

    def digests(self, name: str, view: View, drawn: list[list[Record]]) -> tuple[CompiledView, TableHash, TableHash]:
        """The hashes that PostgreSQL and Spark compute for the same rows. The rows stay in `recon`."""
        compiled = self.compiled(f"{name}_digested", with_case(view))
        self._fresh(compiled)
        states = compiled.totals_of({topic: self.events(topic, drawn) for topic in view.reads}).persist()
        merge.add(self.connection, compiled, "recon", stage.stage_rows(states, compiled, self.settings))
        in_database = table_hash.hash_table(self.connection, compiled, sql.Identifier("recon", compiled.table))
        return compiled, in_database, table_hash.hash_frame(compiled, compiled.stored(states))

    def transformed(self, view: View, drawn: list[list[Record]]) -> DataFrame:
        frames = [ProvenanceFrame(self.events(topic, drawn), ("case_id", "cut")) for topic in view.reads]
        rows: ProvenanceFrame = view.contributions(*frames)  # type: ignore[arg-type, assignment]
        frame: DataFrame = rows.frame
        return frame

    def events(self, topic: str, drawn: list[list[Record]]) -> DataFrame:
        """The valid events of a topic in all cases, decoded the way the stream decodes them."""
        times: list[datetime] = []
        columns: dict[str, list[Any]] = {c: [] for c in ("case_id", "cut", "topic", "partition", "offset", "value")}
        for case_id, case in enumerate(drawn):
            offsets: dict[int, int] = {}
            for record in (r for r in case if r.topic == topic):
                offset = offsets[record.partition] = offsets.get(record.partition, -1) + 1
                row = (case_id, record.cut, topic, place(case_id, record), offset, record.value)
                times.append(START + timedelta(seconds=record.second))
                for column, each in zip(columns.values(), row, strict=True):
                    column.append(each)
        values = pa.array(columns.pop("value"), pa.binary())
        coordinates = {"broker_time": pa.array(times, pa.timestamp("us", "UTC"))} | {
            n: pa.array(v, pa.string() if n == "topic" else pa.int64() if n == "offset" else pa.int32())
            for n, v in columns.items()
        }
        lenient = replace(self.types[topic], future_limit=timedelta(days=5_000_000))
        events = judge(lenient, pa.RecordBatch.from_pydict(coordinates | {"value": values}))
        typed = {n: events.column(n) for n in [*lenient.arrow_schema.names, "invalid"]}
        return self.spark.createDataFrame(pa.table(coordinates | typed)).where("invalid IS NULL").drop("invalid")

    def _fresh(self, compiled: CompiledView) -> None:
        self.connection.execute("DELETE FROM truelog.view WHERE view = %s", (compiled.name,))
        for schema, each in product(("state", "stage", "recon", "batch"), compiled.tables):
            for suffix in ("", joins.CHANGES):
                drop = sql.SQL("DROP TABLE IF EXISTS {} CASCADE").format(
                    sql.Identifier(schema, f"{each.table}{suffix}")
                )
                self.connection.execute(drop)
        table.deploy_table(self.connection, replace(compiled, view=replace(compiled.view, present={}, columns={})))
        for each in compiled.tables:
            table.create_table(self.connection, each, "recon", each.table)

    def _tick(self, by_case: CompiledView, end: int) -> None:
        """If the view has `keep`, store one tick for each cut."""
        if by_case.view.keep:
            times = [clock_after(by_case.view, cut) for cut in range(end + 1)]
            ticks = [(cut, time, time, "{}") for cut, time in enumerate(times)]
            columns = "offset bigint, occurred_at timestamp, broker_time timestamp, ends string"
            frame = self.spark.createDataFrame(ticks, columns)
            clock.store_ticks(self.connection, by_case.name, frame)

    def _stream(self, by_case: CompiledView, by_cut: CompiledView, end: int) -> None:
        """Merge the cuts one after another, then copy the streamed table under the name that a reconcile would use."""
        self.connection.execute(
            sql.SQL(
                "INSERT INTO {} (attempt, row_hash, {columns}) SELECT cut::text, row_hash, {columns} FROM {}"
            ).format(stage.table(by_case), stage.table(by_cut), columns=names(by_case.stored_columns))
        )
        for cut in range(end + 1):
            merge.add(self.connection, by_case, "state", StagedRows((str(cut),), 0, 0))
            merge.drop_expired(self.connection, by_case, "state", _reached(by_case, cut))
        self._copy_streamed(by_case)

    def _copy_streamed(self, compiled: CompiledView) -> None:
        for each in compiled.tables:
            copy = row_diff.streamed_table(each)
            self.connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(copy))
            self.connection.execute(
                sql.SQL("CREATE TABLE {} AS TABLE {}").format(copy, sql.Identifier("state", each.table))
            )


def place(case_id: int, record: Record) -> int:
    """The partition of a record. No two cases share one, so that their logs are independent."""
    return case_id * PARTITIONS + record.partition


def _touching(places: Iterable[tuple[str, int]]) -> Positions:
    """Some positions in these partitions."""
    offsets: dict[str, dict[int, int]] = {}
    for topic, partition in places:
        offsets.setdefault(topic, {})[partition] = 1
    return Positions(offsets)


def _reached(by_case: CompiledView, cut: int) -> Positions:
    """The positions just past the tick that ends the cut."""
    return Positions({clock.TOPIC: {0: cut + 1}}, {clock.TOPIC: by_case.name})
