"""Explains a row of a view by the archived events behind it.

1. Read the row and the view's positions in one snapshot of the database.
2. Read from the archive what the records below these positions add to the row.
3. Choose a page of these events, and compute the row after each of them, and after all events.
4. Compare the row after all events with the row that was read.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import reduce
from typing import TypeVar

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from truelog.archive import reader as archive_reader
from truelog.archive.reader import ScanCost, Wanted
from truelog.batch.batch_context import BatchContext, for_records
from truelog.batch.rebuild import Rebuilder
from truelog.history import shown_rows
from truelog.history.explain_cost import archived_end
from truelog.history.explanation import Addition, ExplainedEvent, Explanation, Verdict
from truelog.history.row_key import RowKey, parse_key
from truelog.history.shown_rows import ShownRows, as_data
from truelog.kernel import clock, merge
from truelog.log.positions import Positions
from truelog.schema.names import COORDINATES
from truelog.storage import db_snapshot
from truelog.storage.database import connect
from truelog.support.errors import BadInput
from truelog.support.settings import Settings
from truelog.tables import deploy as table
from truelog.tables import kinds, plan
from truelog.tables.compiled_view import CompiledView
from truelog.tables.row_filter import RowFilter
from truelog.tables.staging.value_error import FAILURES, is_value_error, reason
from truelog.tables.table import Table
from truelog.tables.tracing.event_steps import EVENT_TIME, PLACE, STEP, EventSteps, Place
from truelog.tables.tracing.together import collected, packed, unpacked
from truelog.tables.tracing.trace import REASON, Trace

MOST_READ_HERE = 50_000  # records
MOST_BYTES_READ_HERE = 16 * 2**20  # of compressed files
_LEAST_TO_SHARE = 3  # frames; two of them are not worth a further job

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_T = TypeVar("_T")
_R = TypeVar("_R")


@dataclass(frozen=True)
class Page:
    """The last events before the event with these coordinates, "topic:partition:offset"; the last of all if None."""

    limit: int = 50
    before: str | None = None


LAST_PAGE = Page()


@dataclass(frozen=True)
class _Stored:
    """The rows in the view's table, at its positions, and whether rows with their key have expired there."""

    rows: ShownRows
    positions: Positions
    is_expired: bool


@dataclass(frozen=True)
class _Listed:
    """The events of a page with their times, the number of events before the page, and the number of all events."""

    places: Sequence[Place]
    times: Sequence[int]
    before: int
    total: int


@dataclass(frozen=True)
class _Found:
    """The row after each step, what each event of the page adds, why events of it are refused, and how many are."""

    rows: Mapping[int, ShownRows]
    adds: Mapping[int, Sequence[Addition]]
    refused: Mapping[int, str]
    refused_total: int


def explain(
    context: BatchContext, compiled: CompiledView, given: Mapping[str, str | None], page: Page = LAST_PAGE
) -> Explanation:
    """Explain the row with this key, whose values are text, or None for NULL.

    Raises:
        BadInput: the key or the page is wrong.
        ArchiveBehind, CatalogBehind: no record of a topic is archived yet, or the catalog is that of a backup.
        NotMade, CodeChanged, MeaningChanged: the view has no table yet, or other code made it.
    """
    began, settings = time.monotonic(), context.settings
    with connect(settings, autocommit=True) as connection:
        table.require_same_code(connection, compiled)
        with for_records(context, merge.positions(connection, compiled).only(compiled.view.reads).records) as within:
            key = parse_key(within.spark, compiled.own, given)
            stored = _read_stored(settings, compiled, key)
            end, missing = archived_end(settings, compiled.view.reads, stored.positions)
            cost = archive_reader.scan_cost(settings, Wanted.between(Positions(), end))
            rebuilder = Rebuilder(replace(within, are_few=_are_few(cost)), connection, compiled)
            rebuilder.require_reading()
            trace = kinds.kind_of(compiled.own).trace(_Tracing(rebuilder, end, key))
            listed = _list_events(trace, page)
            steps = EventSteps(listed.places)
            found = _find(settings, compiled, trace, steps)
            rebuilt = () if stored.is_expired else found.rows.get(steps.numbers[-1], ())
            return Explanation(
                compiled.name,
                compiled.view.version,
                given,
                end,
                missing,
                *_verdict(stored, rebuilt, listed.total, missing),
                as_data(stored.rows),
                as_data(rebuilt),
                listed.total,
                _events(listed, found),
                cost,
                time.monotonic() - began,
                found.refused_total,
            )


def _are_few(cost: ScanCost) -> bool:
    """Whether this process may read the records, because they are part of each plan that reads them."""
    return cost.records <= MOST_READ_HERE and cost.bytes <= MOST_BYTES_READ_HERE


def _find(settings: Settings, compiled: CompiledView, trace: Trace, steps: EventSteps) -> _Found:
    """Compute by one plan the row after each step, what each event adds, and which events are refused."""
    tables, refused = [compiled.own, *(each.table for each in trace.tables)], trace.refused
    try:
        states = [trace.rows(steps), *(steps.at_events(each.listed) for each in trace.tables)]
        frames = [table.stored(each, STEP) for table, each in zip(tables, states, strict=True)]
        if refused is not None:
            counted = F.count_distinct(PLACE).alias("events"), F.max(REASON).alias(REASON)
            frames.append(steps.numbered(refused).groupBy(STEP).agg(*counted))
        found = _in_two_plans(frames[0].sparkSession, collected, frames)
    except FAILURES as error:
        if not is_value_error(error):
            raise
        raise BadInput(
            f"the view leaves this key out, because its fold fails on the events: {reason(error)}"
        ) from error
    rows, *adds = shown_rows.of_states(settings, zip(tables, found, strict=False))
    if refused is not None:
        reasons = found[-1].to_pylist()
        by_step = {row[STEP]: row[REASON] for row in reasons}
        return _Found(rows, _additions(trace, adds), by_step, sum(row["events"] for row in reasons))
    by_step = _refused_by_row(trace.refusal, rows)
    return _Found(rows, _additions(trace, adds), by_step, sum(step <= len(steps.places) for step in by_step))


def _read_stored(settings: Settings, compiled: CompiledView, key: RowKey) -> _Stored:
    with db_snapshot.read_snapshot(settings) as snapshot:
        positions = merge.positions(snapshot, compiled)
        limit, age = clock.cutoff(snapshot, compiled.own, positions), key.values.get(compiled.own.age_column or "")
        rows = shown_rows.of_table(snapshot, compiled.own, key.condition)
        return _Stored(rows, positions, limit is not None and age is not None and age < limit)


@dataclass(frozen=True)
class _Tracing:
    """The search in the archived records below `end` (`truelog.tables.tracing.trace.Tracing`)."""

    rebuilder: Rebuilder
    end: Positions
    row_key: RowKey

    @property
    def compiled(self) -> CompiledView:
        return self.rebuilder.compiled

    @property
    def key(self) -> DataFrame:
        return self.row_key.frame

    @property
    def only(self) -> RowFilter:
        return self.row_key.only

    def transformed_rows(self, table: Table) -> DataFrame:
        wanted = Wanted.between(Positions(), self.end.only(table.view.reads))
        return self.rebuilder.transformed_by_record(table, wanted, self.end)

    def kept(self, make: Callable[[_T], DataFrame], of: Iterable[_T]) -> list[DataFrame]:
        if not self.rebuilder.context.is_small:
            return list(map(make, of))
        if self.rebuilder.context.are_few:
            return self.computed(make, of)
        return self._computed(make, of, lambda rows: rows.repartition(1))  # several tasks read the files

    def computed(self, make: Callable[[_T], DataFrame], of: Iterable[_T]) -> list[DataFrame]:
        # What is computed from one partition needs no shuffle.
        return self._computed(make, of, lambda rows: rows.coalesce(1) if self.rebuilder.context.is_small else rows)

    def _computed(
        self, make: Callable[[_T], DataFrame], of: Iterable[_T], partitioned: Callable[[DataFrame], DataFrame]
    ) -> list[DataFrame]:
        def by_one_plan(items: Sequence[_T]) -> list[DataFrame]:
            return unpacked(partitioned(packed(list(map(make, items)))).localCheckpoint(), len(items))

        return _in_two_plans(self.rebuilder.context.spark, by_one_plan, list(of))


def _in_two_plans(spark: SparkSession, work: Callable[[Sequence[_T]], Sequence[_R]], items: Sequence[_T]) -> list[_R]:
    """The result of each item. One thread makes the plan of every second item, and another that of the others.

    A plan of few rows takes one core longer than its rows.
    """
    if len(items) < _LEAST_TO_SHARE:
        return [*work(items)]
    with ThreadPoolExecutor(1, initializer=plan.write_as, initargs=(spark,)) as pool:
        others = pool.submit(work, items[1::2])
        found = [*work(items[::2])]
        for number, each in enumerate(others.result()):
            found.insert(2 * number + 1, each)
    return found


def _list_events(trace: Trace, page: Page) -> _Listed:
    """The events of the page, in order."""
    every = (source.listed.select(PLACE, EVENT_TIME) for source in trace.tables)
    events = reduce(DataFrame.unionByName, every).distinct()
    is_before = F.lit(True) if page.before is None else F.col(PLACE) < _place(events, page.before)
    counted = events.agg(F.count("*").alias("total"), F.count_if(is_before).alias("before"))
    last = events.where(is_before).orderBy(F.desc(PLACE)).limit(page.limit)
    [counts], rows = (each.to_pylist() for each in collected([counted, last]))
    found = sorted((Place(**row[PLACE]), row[EVENT_TIME]) for row in rows)
    return _Listed(
        [place for place, _ in found], [at for _, at in found], counts["before"] - len(found), counts["total"]
    )


def _place(events: DataFrame, coordinates: str) -> Column:
    """The place of the event with these coordinates, as a constant."""
    name = F.concat_ws(":", *(F.col(PLACE)[part] for part in COORDINATES))
    found = events.where(name == coordinates).collect()
    if not found:
        raise BadInput(f"no event behind the row has the coordinates {coordinates!r}; `earlier` names the next page")
    return F.struct(*(F.lit(value).alias(part) for part, value in found[0][PLACE].asDict().items()))


def _verdict(stored: _Stored, rebuilt: ShownRows, total: int, missing: int) -> tuple[Verdict, str]:
    if missing:
        behind = f"the archive is {missing} records behind the view, so the last events are missing"
        return Verdict.UNKNOWN, f"{behind}. Is the archive application running?"
    if stored.rows != rebuilt:
        return Verdict.DIFFERENT, "the row does not follow from its events: `truelog reconcile` searches for the cause"
    if stored.is_expired:
        return Verdict.EQUAL, "the row has expired"
    return Verdict.EQUAL, "" if total else "no event"


def _additions(trace: Trace, adds: Sequence[Mapping[int, ShownRows]]) -> dict[int, list[Addition]]:
    """What each event of the page adds to the tables, by its step."""
    found: dict[int, list[Addition]] = {}
    for source, by_step in zip(trace.tables, adds, strict=True):
        for step, rows in by_step.items():
            added = (Addition(source.table.relation, each.key_data, each.row_data) for each in rows)
            found.setdefault(step, []).extend(added)
    return found


def _refused_by_row(column: str | None, rows: Mapping[int, ShownRows]) -> dict[int, str]:
    """Why events of the page change nothing, by their step, if a column of the row after them says so."""
    if column is None:
        return {}
    after = ((step, row[column]) for step, found in rows.items() for row in as_data(found))
    return {step: reason for step, reason in after if reason}


def _events(listed: _Listed, found: _Found) -> list[ExplainedEvent]:
    return [
        ExplainedEvent(
            listed.before + step,
            place.topic,
            place.partition,
            place.offset,
            _EPOCH + timedelta(microseconds=event_time),
            _EPOCH + timedelta(microseconds=place.at),
            found.adds.get(step, []),
            as_data(found.rows.get(step, ())),
            found.refused.get(step, ""),
        )
        for step, (place, event_time) in enumerate(zip(listed.places, listed.times, strict=True), 1)
    ]
