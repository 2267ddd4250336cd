"""What a batch does to a view's tables, whatever their kind. A new kind is listed here."""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import TypeVar

from psycopg import sql
from pyspark.sql import DataFrame

from truelog.log import records
from truelog.log.positions import Range
from truelog.log.records import Coordinates, EventFrames
from truelog.log.topics import PartitionKey
from truelog.storage.database import Connection
from truelog.tables.compiled_view import CompiledView
from truelog.tables.dedupe import compile as copies
from truelog.tables.dedupe import merge as dedupe
from truelog.tables.dedupe.kind import Seen
from truelog.tables.fold.kind import Fold
from truelog.tables.join.kind import Join
from truelog.tables.kind import Kind
from truelog.tables.patterns.kind import Patterns
from truelog.tables.searches.kind import Searches
from truelog.tables.stage import StagedRows
from truelog.tables.staging.batch_plans import BatchPlans
from truelog.tables.staging.failed_group import FailedGroup
from truelog.tables.table import Table
from truelog.views.view import View

KINDS = (Seen(), Patterns(), Searches(), Fold(), Join(), Kind())  # the first that a table or a view is of is its kind

_T = TypeVar("_T")


def declared_kind(view: View) -> Kind:
    """The kind of the view's own table."""
    return next(kind for kind in KINDS if kind.is_declared_by(view))


def further_side_tables(view: View) -> dict[str, View]:
    """The side tables that a view has whatever its own kind is."""
    return {name: side for kind in KINDS for name, side in kind.further_side_tables(view).items()}


def create(connection: Connection, compiled: CompiledView) -> None:
    """Create what a view's tables need beside them, in the transaction that creates the tables."""
    dedupe.create(connection, compiled)
    kind_of(compiled.own).create(connection, compiled)


@dataclass(frozen=True)
class Batch:
    """The events of a batch, which are in these partitions. Copies and the records in `excluded` do not count."""

    events: EventFrames
    partitions: Collection[PartitionKey]
    excluded: Sequence[Coordinates] = ()


def stage_batch(connection: Connection, compiled: CompiledView, plans: BatchPlans, batch: Batch) -> StagedRows:
    """Load the totals of a batch into the view's staging tables."""
    topics = {topic for topic, _ in batch.partitions}
    sources = [each for each in daily(compiled) if not topics.isdisjoint(each.view.reads)]
    with dedupe.removed(connection, compiled, plans, batch.events, batch.partitions) as (seen, distinct):
        counted = records.without_records(distinct, batch.excluded)
        # A plan that is repeated reads all events of the batch.
        of_events = plans if counted is batch.events else BatchPlans(plans.spark, plans.settings)
        added = {each.side: of_events.stage(each, partial(each.totals_of, counted)) for each in sources}
        staged = {**seen, **added}
    own = kind_of(compiled.own).follow(plans, compiled, staged)
    return replace(own, sides={**own.sides, **{side: rows for side, rows in staged.items() if side}})


def add_batch(connection: Connection, compiled: CompiledView, staged: StagedRows) -> None:
    """Add a batch's staged rows to the view's tables, and change what follows from them."""
    kind_of(compiled.own).add_batch(connection, compiled, staged)


def add(connection: Connection, compiled: CompiledView, schema: str, staged: StagedRows) -> None:
    """Add staged rows of all of a view's tables to its tables in `schema`."""
    kind_of(compiled.own).add(connection, compiled, schema, staged)


def leaving_out_failures(
    compiled: CompiledView, states: Callable[[Table], DataFrame], attempt: Callable[[CompiledView], _T]
) -> _T:
    """Run `attempt` with the view; if a fold fails on some groups, run it with a view that leaves these groups out.

    `states` rebuilds a table from which the rows follow.
    """
    return kind_of(compiled.own).leaving_out_failures(compiled, states, attempt)


def without_expired(compiled: CompiledView, limit: datetime | None) -> CompiledView:
    """The view, which computes nothing for rows before this time, the limit of its `keep`, if it can leave them out."""
    return kind_of(compiled.own).without_expired(compiled, limit)


def forget_expired(connection: Connection, compiled: CompiledView, limit: datetime | None) -> None:
    """Delete what is recorded about groups before this time, whose rows have expired."""
    if limit is not None:
        kind_of(compiled.own).forget_expired(connection, compiled, limit)


def failed_groups(compiled: CompiledView) -> tuple[FailedGroup, ...]:
    """The groups that the view leaves out."""
    return kind_of(compiled.own).failed_groups(compiled)


def changes(compiled: CompiledView) -> sql.Composed:
    """The query of the rows of a view's own table that the transaction has changed or removed."""
    return kind_of(compiled.own).changes(compiled.own)


def forget_copies(
    connection: Connection, compiled: CompiledView, schema: str, partitions: Collection[PartitionKey]
) -> None:
    """Delete what the view remembers of events in these partitions that no longer have copies."""
    dedupe.forget(connection, compiled, schema, partitions)


def countable(
    table: Table,
    events: EventFrames,
    excluded: Iterable[Coordinates] = (),
    ranges: Collection[Range] | None = None,
) -> EventFrames:
    """The events that a table counts, given the events of a log from its beginning on.

    If `ranges` is given, only events in these ranges count. Events before them are needed only as far as they may have
    copies there (`truelog.batch.lookback`).
    """
    horizon = lookback_seconds(table)
    if horizon is None:
        return records.without_records(events, excluded)
    if table.side == copies.SEEN:
        return copies.remembered(events, horizon) if ranges is None else _in_ranges(copies.timed(events), ranges)
    distinct = copies.without_copies(events, horizon)
    return records.without_records(distinct if ranges is None else _in_ranges(distinct, ranges), excluded)


def lookback_seconds(table: Table) -> int | None:
    """How long before an event its copies may be, which decide whether it counts; None if each event counts."""
    return table.view.horizon


def _in_ranges(events: EventFrames, ranges: Collection[Range]) -> EventFrames:
    return {
        topic: frame.where(records.in_ranges(each for each in ranges if each.topic == topic))
        for topic, frame in events.items()
    }


def daily(compiled: CompiledView) -> tuple[Table, ...]:
    """The tables to which events are added and whose states of single log days add up."""
    return tuple(each for each in compiled.sources if kind_of(each).is_daily())


def kind_of(table: Table) -> Kind:
    return next(kind for kind in KINDS if kind.is_kind_of(table))
