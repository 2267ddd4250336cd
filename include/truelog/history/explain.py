"""Explains a row of a view by the archived events behind it.

1. Read the row and the view's positions in one snapshot of the database.
2. Read from the archive what the records below these positions add to the row.
3. Choose a page of these events, and compute the row after each of them, and after all events.
4. Compare the row after all events with the row that was read.
"""

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import reduce
from typing import TypeVar

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from truelog.archive import reader as archive_reader
from truelog.archive.reader import Wanted
from truelog.batch.batch_context import SIDE_BY_SIDE, BatchContext
from truelog.batch.rebuild import Rebuilder
from truelog.history import shown_rows
from truelog.history.explain_cost import archived_end
from truelog.history.explanation import Addition, ExplainedEvent, Explanation, Verdict
from truelog.history.row_key import RowKey, parse_key
from truelog.history.shown_rows import ShownRows, as_data
from truelog.kernel import clock, merge
from truelog.log.positions import Positions
from truelog.schema.names import COORDINATES
from truelog.spark.session import small_session
from truelog.storage import db_snapshot
from truelog.storage.database import connect
from truelog.support.errors import BadInput
from truelog.support.settings import Settings
from truelog.tables import deploy as table
from truelog.tables import kinds
from truelog.tables.compiled_view import CompiledView
from truelog.tables.row_filter import RowFilter
from truelog.tables.staging.value_error import FAILURES, is_value_error, reason
from truelog.tables.table import Table
from truelog.tables.tracing.event_steps import EVENT_TIME, PLACE, STEP, EventSteps, Place
from truelog.tables.tracing.trace import REASON, Trace, TracedTable

# For so few records, most of the time is that of planning, and generated code takes longer to make than it saves.
SMALL_RECORDS = 200_000
# Spark writes a description of each plan for its pages, which are off. With all fields, it takes longer than the plan.
_UNDESCRIBED = {
    "spark.sql.ui.explainMode": "simple",
    "spark.sql.debug.maxToStringFields": "1",
    "spark.sql.maxPlanStringLength": "0",
}

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_A = TypeVar("_A")
_T = TypeVar("_T")


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


def explain(
    context: BatchContext, compiled: CompiledView, given: Mapping[str, str | None], page: Page = LAST_PAGE
) -> Explanation:
    """Explain the row with this key, whose values are text, or None for NULL.

    Raises:
        BadInput: the key or the page is wrong.
        ArchiveBehind: no record of a topic is archived yet.
        NotMade, CodeChanged, MeaningChanged: the view has no table yet, or other code made it.
    """
    began, settings = time.monotonic(), context.settings
    with connect(settings, autocommit=True) as connection:
        table.require_same_code(connection, compiled)
        context = _in_session(context, merge.positions(connection, compiled).only(compiled.view.reads))
        rebuilder = Rebuilder(context, connection, compiled)
        rebuilder.require_reading()
        key = parse_key(context.spark, compiled.own, given)
        stored = _read_stored(settings, compiled, key)
        end, missing = archived_end(settings, compiled.view.reads, stored.positions)
        trace = kinds.kind_of(compiled.own).trace(_Tracing(rebuilder, end, key))
        listed = _list_events(trace, page)
        steps = EventSteps(context.spark, listed.places)
        rows = _rows_after(settings, compiled, trace, steps)
        rebuilt = () if stored.is_expired else rows.get(steps.numbers[-1], ())
        events = _events(settings, trace, steps, listed, rows)
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
            events,
            archive_reader.scan_cost(settings, Wanted.between(Positions(), end)),
            time.monotonic() - began,
            _count_refused(trace, events),
        )


def _in_session(context: BatchContext, positions: Positions) -> BatchContext:
    """The context, with a session for small batches if there are few records below the positions."""
    if not _is_small(positions):
        return context
    return replace(context, spark=small_session(context.spark, context.settings.spark_catalog() | _UNDESCRIBED))


def _is_small(positions: Positions) -> bool:
    return sum(each.end - each.start for each in Positions().ranges_to(positions)) <= SMALL_RECORDS


def _rows_after(settings: Settings, compiled: CompiledView, trace: Trace, steps: EventSteps) -> dict[int, ShownRows]:
    """The row after each step."""
    try:
        return shown_rows.of_states(settings, compiled.own, trace.rows(steps))
    except FAILURES as error:
        if not is_value_error(error):
            raise
        raise BadInput(
            f"the view leaves this key out, because its fold fails on the events: {reason(error)}"
        ) from error


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

    def kept(self, tables: Collection[Table]) -> list[DataFrame]:
        rows = [self.transformed_rows(each) for each in tables]
        return self.computed(rows) if _is_small(self.end.only(self.compiled.view.reads)) else rows

    def computed(self, frames: Iterable[DataFrame]) -> list[DataFrame]:
        return _side_by_side(lambda each: each.localCheckpoint(), frames)


def _side_by_side(work: Callable[[_A], _T], items: Iterable[_A]) -> list[_T]:
    """What `work` returns for each item. One alone leaves cores idle while Spark plans."""
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        return list(pool.map(work, items))


def _list_events(trace: Trace, page: Page) -> _Listed:
    """The events of the page, in order."""
    every = (source.listed.select(PLACE, EVENT_TIME) for source in trace.tables)
    events = reduce(DataFrame.unionByName, every).distinct()
    is_before = F.lit(True) if page.before is None else F.col(PLACE) < _place(events, page.before)
    counted = events.agg(F.count("*"), F.count_if(is_before))
    last = events.where(is_before).orderBy(F.desc(PLACE)).limit(page.limit)
    [(total, before)], listed = _side_by_side(lambda each: each.collect(), (counted, last))
    found = listed[::-1]
    return _Listed(
        [Place(*row[PLACE]) for row in found], [row[EVENT_TIME] for row in found], before - len(found), total
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


def _events(
    settings: Settings, trace: Trace, steps: EventSteps, listed: _Listed, rows: Mapping[int, ShownRows]
) -> list[ExplainedEvent]:
    def added_by(source: TracedTable) -> dict[int, ShownRows]:
        return shown_rows.of_states(settings, source.table, steps.at_events(source.listed))

    adds: dict[int, list[Addition]] = {}
    for source, found in zip(trace.tables, _side_by_side(added_by, trace.tables), strict=True):
        for step, added in found.items():
            relation = source.table.relation
            adds.setdefault(step, []).extend(Addition(relation, each.key_data, each.row_data) for each in added)
    refused = _refused(trace, steps, rows)
    return [
        ExplainedEvent(
            listed.before + step,
            place.topic,
            place.partition,
            place.offset,
            _EPOCH + timedelta(microseconds=event_time),
            _EPOCH + timedelta(microseconds=place.at),
            adds.get(step, []),
            as_data(rows.get(step, ())),
            refused.get(step, ""),
        )
        for step, (place, event_time) in enumerate(zip(listed.places, listed.times, strict=True), 1)
    ]


def _count_refused(trace: Trace, events: Sequence[ExplainedEvent]) -> int:
    """How many events are refused: on all pages, or on this one if only the rows of the page say so."""
    if trace.refused is not None:
        return trace.refused.select(PLACE).distinct().count()
    return sum(bool(each.refused) for each in events)


def _refused(trace: Trace, steps: EventSteps, rows: Mapping[int, ShownRows]) -> dict[int, str]:
    """Why events change nothing, by their step."""
    if trace.refusal is not None:
        after = ((step, row[trace.refusal]) for step, found in rows.items() for row in as_data(found))
        return {step: reason for step, reason in after if reason}
    if trace.refused is None:
        return {}
    return {row[STEP]: row[REASON] for row in steps.at_events(trace.refused).collect()}
