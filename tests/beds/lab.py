"""Stream and rebuild many generated logs at once, with the real code and a real database.

A Spark job takes a second regardless of its size. The case therefore becomes an additional key column, so that a few
jobs check the laws on hundreds of cases.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import product
from random import Random
from typing import Any, cast

import pyarrow as pa
from psycopg import sql
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType

from tests.laws.events import START, Record, log
from tests.laws.with_case import with_case
from truelog.batch.batch_context import BatchContext
from truelog.kernel import clock, merge
from truelog.log import records
from truelog.log.positions import Positions
from truelog.log.records import EventFrames
from truelog.reconcile import row_diff
from truelog.reconcile.row_diff import DiffCounts
from truelog.schema.event import EventType, EventTypes
from truelog.schema.event_version import judge
from truelog.storage.database import Connection
from truelog.support.durations import seconds
from truelog.support.settings import Settings
from truelog.tables import deploy as table
from truelog.tables import kinds, stage, table_hash
from truelog.tables.compiled_view import CompiledView
from truelog.tables.compiler import compile_view
from truelog.tables.fold.compiled import Fold
from truelog.tables.join.compile import Joined
from truelog.tables.kinds import Batch
from truelog.tables.patterns.judging import Judging
from truelog.tables.provenance_frame import ProvenanceFrame
from truelog.tables.stage import StagedRows
from truelog.tables.staging.batch_plans import BatchPlans
from truelog.tables.table import Table
from truelog.tables.table_hash import TableHash
from truelog.views.view import View

Change = Callable[[View], View] | None

CASES = 200
# What takes long, with the event types that it depends on.
_CASES: dict[tuple[Any, ...], tuple[EventTypes, list[list[Record]]]] = {}
_COMPILED: list[tuple[View, Change, EventTypes, CompiledView]] = []
PARTITIONS = 100  # of each case: its own partitions are numbered from here on


def cases(
    types: dict[str, EventType], reads: tuple[str, ...], *, number: int = CASES, **described: Any
) -> list[list[Record]]:
    """Generate `number` logs, the same in every run. `events.log` describes the other parameters."""
    read, key = {topic: types[topic] for topic in reads}, (reads, number, *described.items())
    if key not in _CASES or _CASES[key][0] != read:
        draw, chosen = log(types, reads, **described), Random(20260301)
        _CASES[key] = read, [draw(chosen) for _ in range(number)]
    return _CASES[key][1]


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

    @property
    def plans(self) -> BatchPlans:
        return BatchPlans(self.spark, self.settings)

    def compiled(self, name: str, view: View) -> CompiledView:
        return self.compiled_with(name, view, self.types)

    def compiled_once(self, name: str, view: View, change: Change = None) -> CompiledView:
        """Like `compiled`, but a declaration is compiled only once: that takes as long as several jobs.

        If `change` is given, what it makes of the declaration is compiled.
        """
        read = {topic: self.types[topic] for topic in view.reads}
        for declared, changed, types, compiled in _COMPILED:
            if declared is view and changed is change and types == read:
                return renamed(compiled, name)
        compiled = self.compiled(name, change(view) if change else view)
        _COMPILED.append((view, change, read, compiled))
        return compiled

    def by_case(self, name: str, view: View) -> CompiledView:
        """The view with the case as an additional key."""
        return self.compiled_once(f"{name}_by_case", view, with_case)

    def compiled_with(self, name: str, view: View, types: EventTypes) -> CompiledView:
        return compile_view(self.spark, name, view, {n: records.schema(t) for n, t in types.items()})

    def compare_all(self, name: str, view: View, drawn: list[list[Record]]) -> DiffCounts:
        """Stream every case batch by batch, rebuild it in one step and count the differences between the tables."""
        with self._begun(name, view, drawn) as (compiled, events):
            self._stream(compiled, events, drawn)
            self._rebuild(compiled, events, drawn)
        own, *sides = (row_diff.find_differences(self.connection, each) for each in compiled.tables)
        assert not any(each.unequal for each in sides)
        return own

    def rebuild_all(self, name: str, view: View, drawn: list[list[Record]]) -> None:
        """Rebuild every case in one step. The rows stay in `recon`."""
        with self._begun(name, view, drawn) as (compiled, events):
            self._rebuild(compiled, events, drawn)

    def digests(self, name: str, view: View, drawn: list[list[Record]]) -> tuple[CompiledView, TableHash, TableHash]:
        """The hashes that PostgreSQL and Spark compute for the same rows. The rows stay in `recon`."""
        compiled = self.by_case(name, view)
        self._fresh(compiled)
        own = compiled.own
        states = own.totals_of({topic: self.events(topic, drawn) for topic in view.reads}).persist()
        kinds.add(self.connection, compiled, "recon", stage.stage_rows(states, own, self.settings))
        in_database = table_hash.hash_table(self.connection, own, sql.Identifier("recon", own.name))
        return compiled, in_database, table_hash.hash_frame(own, own.stored(states))

    def totals(self, view: View, drawn: list[list[Record]]) -> tuple[DataFrame, DataFrame]:
        """The rows of every case: totalled in one step, and added up from the states of its cuts."""
        by_case = self.compiled("totals", view).own.with_key("case_id", IntegerType())
        by_cut = by_case.with_key("cut", IntegerType())
        rows = self.transformed(view, drawn).persist()
        in_parts = by_case.plus(by_cut.totals(rows).drop("cut"))
        return by_case.stored(by_case.totals(rows)), by_case.stored(in_parts)

    @contextmanager
    def _begun(self, name: str, view: View, drawn: list[list[Record]]) -> Iterator[tuple[CompiledView, EventFrames]]:
        """The view with new, empty tables and its ticks, and the events of all cases."""
        compiled = self.by_case(name, view)
        self._fresh(compiled)
        self.store_ticks(compiled, last_cut(drawn))
        events = {topic: self.events(topic, drawn).persist() for topic in view.reads}
        try:
            yield compiled, events
        finally:
            for frame in events.values():
                frame.unpersist()

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
            for suffix in ("", stage.CHANGES):
                drop = sql.SQL("DROP TABLE IF EXISTS {} CASCADE").format(sql.Identifier(schema, f"{each.name}{suffix}"))
                self.connection.execute(drop)
        table.deploy_table(self.connection, with_own(compiled, view=replace(compiled.view, present={}, columns={})))
        for each in compiled.tables:
            table.create_table(self.connection, each, "recon", each.name)

    def store_ticks(self, by_case: CompiledView, end: int) -> None:
        """If the view has `keep`, store one tick for each cut."""
        if by_case.view.keep:
            times = [clock_after(by_case.view, cut) for cut in range(end + 1)]
            ticks = [(cut, time, time, "{}") for cut, time in enumerate(times)]
            columns = "offset bigint, occurred_at timestamp, broker_time timestamp, ends string"
            frame = self.spark.createDataFrame(ticks, columns)
            clock.store_ticks(self.connection, by_case.name, frame)

    def _rebuild(self, compiled: CompiledView, events: EventFrames, drawn: list[list[Record]]) -> None:
        def states(each: Table) -> DataFrame:
            return each.totals_of(kinds.countable(each, events))

        touched = CompiledView((compiled.own, *_touched(compiled.sides, drawn)))
        staged = stage.stage_tables(touched, states, self.settings)
        kinds.add(self.connection, compiled, "recon", staged)
        self._drop_expired(compiled, "recon", reached(compiled, last_cut(drawn)))

    def _drop_expired(self, compiled: CompiledView, schema: str, end: Positions) -> None:
        now = merge.stored_clock(self.connection, compiled, end)
        merge.drop_expired(self.connection, compiled, schema, end, now)

    def _stream(self, compiled: CompiledView, events: EventFrames, drawn: list[list[Record]]) -> None:
        """Merge the cuts one after another, then copy the streamed tables under the names that a reconcile would use.

        One job stages all cuts of a table. Only what depends on the rows of earlier cuts has jobs for each cut: the
        rows of a Group, and all rows of a view with `dedupe`.
        """
        by_batch = compiled.view.dedupe is not None
        sources = () if by_batch else _touched(compiled.sources, drawn)
        by_cut = {each.side: self._stage_by_cut(each, events) for each in sources}
        for cut in range(last_cut(drawn) + 1):
            places = {(r.topic, place(n, r)) for n, case in enumerate(drawn) for r in case if r.cut == cut}
            if by_batch:
                of_cut = {topic: frame.where(F.col("cut") == cut) for topic, frame in events.items()}
                staged = kinds.stage_batch(self.connection, compiled, self.plans, Batch(of_cut, places))
            else:
                staged = self._staged(compiled, {side: rows[cut] for side, rows in by_cut.items() if cut in rows})
            kinds.add_batch(self.connection, compiled, staged)
            self._drop_expired(compiled, "state", reached(compiled, cut, places))
        self._copy_streamed(compiled)

    def _staged(self, compiled: CompiledView, sources: dict[str, StagedRows]) -> StagedRows:
        """The staged rows of a cut, given those of the tables to which events are added."""
        own = kinds.kind_of(compiled.own).follow(self.plans, compiled, sources)
        return replace(own, sides={**own.sides, **{side: rows for side, rows in sources.items() if side}})

    def _stage_by_cut(self, source: Table, events: EventFrames) -> dict[int, StagedRows]:
        """Stage the totals of all cuts and return those of each cut that has some. The cut is their attempt."""
        by_cut, table = source.with_key("cut", IntegerType()), stage.table(source)
        with_cut: dict[str, Any] = {topic: ProvenanceFrame(frame, ("cut",)) for topic, frame in events.items()}
        rows: Any = source.transformed(with_cut)
        self.connection.execute(sql.SQL("ALTER TABLE {} ADD cut int").format(table))
        stage.stage_rows(by_cut.totals(rows.frame), by_cut, self.settings)
        query = sql.SQL(
            "WITH s AS (UPDATE {} SET _attempt = cut RETURNING cut) SELECT cut, count(*) FROM s GROUP BY cut"
        )
        counted = cast(list[tuple[int, int]], self.connection.execute(query.format(table)).fetchall())
        return {cut: StagedRows((str(cut),), count, 0) for cut, count in counted}

    def _copy_streamed(self, compiled: CompiledView) -> None:
        for each in compiled.tables:
            copy = row_diff.streamed_table(each)
            self.connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(copy))
            self.connection.execute(
                sql.SQL("CREATE TABLE {} AS TABLE {}").format(copy, sql.Identifier("state", each.name))
            )


def _touched(tables: Iterable[Table], drawn: list[list[Record]]) -> tuple[Table, ...]:
    """The tables for which there are records at all. A job for any other table would also take a second."""
    topics = {record.topic for case in drawn for record in case}
    return tuple(each for each in tables if not topics.isdisjoint(each.view.reads))


def renamed(compiled: CompiledView, name: str) -> CompiledView:
    """The same compiled view under another name."""
    return everywhere(compiled, lambda table: replace(table, owner=name))


def with_own(compiled: CompiledView, **changes: Any) -> CompiledView:
    """The same compiled view with changes of the table that readers query."""
    return CompiledView((replace(compiled.own, **changes), *compiled.sides))


def everywhere(compiled: CompiledView, change: Callable[[Table], Table]) -> CompiledView:
    """Change every table of a compiled view, and every table that one of them follows from."""
    return CompiledView(tuple(_everywhere(each, change) for each in compiled.tables))


def _everywhere(table: Table, change: Callable[[Table], Table]) -> Table:
    derivation = table.derivation
    if isinstance(derivation, Fold):
        derivation = replace(derivation, inputs=_everywhere(derivation.inputs, change))
    if isinstance(derivation, Judging):
        derivation = replace(derivation, rules=_everywhere(derivation.rules, change))
    if isinstance(derivation, Joined):
        derivation = replace(
            derivation, tables={side: _everywhere(each, change) for side, each in derivation.tables.items()}
        )
    return replace(change(table), derivation=derivation)


def place(case_id: int, record: Record) -> int:
    """The partition of a record. No two cases share one, so that their logs are independent."""
    return case_id * PARTITIONS + record.partition


def reached(compiled: CompiledView, cut: int, places: Iterable[tuple[str, int]] = ()) -> Positions:
    """The positions just past the tick that ends the cut, and some positions in these partitions."""
    offsets: dict[str, dict[int, int]] = {clock.TOPIC: {0: cut + 1}}
    for topic, partition in places:
        offsets.setdefault(topic, {})[partition] = 1
    return Positions(offsets, {clock.TOPIC: compiled.name})
