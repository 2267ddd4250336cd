"""What a merge refuses, and what it leaves behind, for views that are rare in other tests. Without Spark."""

import json
import uuid
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import product

import pytest
from psycopg import sql
from pyspark.sql.types import IntegerType, LongType, StringType, TimestampType

from tests.builders.log import a_tick
from tests.builders.views import a_failed_group, an_exclusion, an_oversized_group
from tests.library.kernel.zombie import EVENTS, at, counter
from tests.library.tables.fold import grouped
from truelog import Sum, View
from truelog.kernel import merge
from truelog.kernel.exclusions import Excluded
from truelog.kernel.merge import Merge
from truelog.log.positions import Positions, Range
from truelog.storage.database import Connection
from truelog.support.errors import Stale, TooManyExcluded
from truelog.tables import deploy as table
from truelog.tables import stage
from truelog.tables.compiled_view import CompiledView
from truelog.tables.dedupe.compile import SEEN, seen_table
from truelog.tables.table import Table


def name() -> str:
    return f"v{uuid.uuid4().hex[:8]}"


@pytest.fixture
def view(connection: Connection) -> CompiledView:
    compiled = counter(name())
    table.deploy_table(connection, compiled)
    return compiled


def repair(connection: Connection, compiled: CompiledView) -> None:
    with connection.transaction():
        merge.record_repair(connection, compiled)


def test_a_batch_that_was_computed_before_a_repair_is_refused(connection: Connection, view: CompiledView) -> None:
    other = counter(view.name, version=2)
    table.deploy_table(connection, other)
    repair(connection, view)
    before = merge.repairs(connection, view)
    assert (before, merge.repairs(connection, other), merge.repairs(connection, counter(name()))) == (1, 0, 0)
    repair(connection, other)
    merge.apply(connection, view, Merge(at(0), at(1), stage.NO_ROWS, repairs=before))
    repair(connection, view)
    with pytest.raises(Stale, match="was repaired while its batch was computed"):
        merge.apply(connection, view, Merge(at(1), at(2), stage.NO_ROWS, repairs=before))
    assert merge.positions(connection, view) == at(1)
    merge.apply(connection, view, Merge(at(1), at(2), stage.NO_ROWS))  # it has used no row of the tables


def test_only_a_batch_that_excludes_records_can_exclude_too_many(connection: Connection, view: CompiledView) -> None:
    for offset in range(EVENTS + 1):
        an_exclusion(connection, view.name, offset, topic="page_view")
    merge.apply(connection, view, Merge(at(0), at(EVENTS), stage.NO_ROWS))
    failing = Merge(at(EVENTS), at(EVENTS + 2), stage.NO_ROWS, [Excluded("page_view", 0, EVENTS + 1, "DIVIDE_BY_ZERO")])
    with pytest.raises(TooManyExcluded):
        merge.apply(connection, view, failing)
    assert merge.positions(connection, view) == at(EVENTS)


def both(click: int, tick: int) -> Positions:
    return Positions({"page_view": {0: click}, "ticks": {0: tick}}, {"page_view": "an-id", "ticks": "ticks-id"})


def test_few_records_are_named_and_more_are_not() -> None:
    view = counter("any")
    few = Merge(both(20, 0), both(30, 50), stage.NO_ROWS)
    assert (few.records(view), few.few_records(view)) == (10, [Range("page_view", 0, 20, 30)])
    assert Merge(both(20, 0), both(31, 0), stage.NO_ROWS).few_records(view) == []


def published(connection: Connection, compiled: CompiledView) -> list[tuple[object, ...]]:
    """The steps of the output: how many rows each has, and which records alone have changed them."""
    query = (
        "SELECT count(*), s.records FROM truelog.output_step AS s JOIN truelog.outbox AS o "
        "ON (o.view, o.version, o.step) = (s.view, s.version, s.last) WHERE s.view = %s GROUP BY s.last, s.records "
        "ORDER BY s.last"
    )
    return [(rows, records) for rows, records in connection.execute(query, (compiled.name,)).fetchall()]


@pytest.fixture
def output(connection: Connection) -> CompiledView:
    """A view that publishes its rows and drops those of a day before the log's clock."""
    own = counter(name()).own
    declared = View(
        reads=("page_view",),
        transform=own.view.transform,
        key=("event_id", "at"),
        measures={"n": Sum()},
        keep="1 day",
        publish=True,
    )
    types = {"event_id": StringType(), "at": TimestampType(), "n": IntegerType()}
    compiled = CompiledView((Table(own.owner, declared, types, "published"),))
    table.deploy_table(connection, compiled)
    return compiled


NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def test_a_change_names_its_records_unless_the_clock_may_have_changed_rows(
    connection: Connection, output: CompiledView
) -> None:
    ticks = output.name  # the id of the topic
    for tick in range(2):
        a_tick(connection, ticks, tick, NOON + timedelta(minutes=tick), Positions())

    def here(event: int, tick: int) -> Positions:
        return Positions({"page_view": {0: event}, "ticks": {0: tick}}, {"page_view": "an-id", "ticks": ticks})

    def add(begin: Positions, end: Positions) -> None:
        attempt = uuid.uuid4().hex
        row = "INSERT INTO {} (_attempt, _row_hash, event_id, at, n) VALUES ({}, 1, {}, {}, 1)"
        values = attempt, attempt, NOON
        into = stage.table(output.own)
        connection.execute(sql.SQL(row).format(into, *map(sql.Literal, values)))
        merge.apply(connection, output, Merge(begin, end, stage.StagedRows((attempt,), 1, 1)))

    add(here(0, 0), here(1, 1))  # the clock begins
    add(here(1, 1), here(2, 1))
    add(here(2, 1), here(3, 2))  # the clock moves
    add(here(3, 2), here(20, 2))  # too many records
    record = json.dumps([["page_view", 0, 1, 2]])
    assert published(connection, output) == [(1, None), (1, record), (1, None), (1, None)]


def test_a_merge_forgets_ids_that_can_have_no_more_copies(connection: Connection) -> None:
    own = counter(name()).own
    declared = replace(own.view, dedupe="1 hour")
    seen = replace(seen_table(declared), dedupe=declared.dedupe)
    types = {"topic": StringType(), "partition": IntegerType(), "event_id": StringType(), "offset": LongType()}
    side = Table(own.owner, seen, types | {"log_time": TimestampType()}, "seen", side=SEEN)
    compiled = CompiledView((Table(own.owner, declared, own.dtypes, "deduped"), side))
    table.deploy_table(connection, compiled)
    insert = sql.SQL(
        "INSERT INTO {} (topic, partition, event_id, \"offset\", log_time) VALUES ('page_view', 0, %s, %s, %s)"
    )
    for offset, minutes in enumerate((0, 59, 61)):
        state = sql.Identifier("state", side.name)
        connection.execute(insert.format(state), (f"e{offset}", offset, NOON + timedelta(minutes=minutes)))
    merge.apply(connection, compiled, Merge(at(0), at(1), stage.NO_ROWS))
    left = connection.execute(sql.SQL("SELECT event_id FROM {} ORDER BY 1").format(sql.Identifier("state", side.name)))
    assert left.fetchall() == [("e1",), ("e2",)]


def test_groups_that_are_left_out_are_forgotten_when_the_rows_of_the_stream_expire(connection: Connection) -> None:
    compiled = grouped.made(grouped.GROUPED)
    for each, schema in product(compiled.tables, ("state", "batch")):
        table.create_table(connection, each, schema, each.name)
    for url, day in (("old", 1), ("new", 2)):
        key = [url, (NOON + timedelta(days=day)).isoformat(), "2026-03-01"]
        an_oversized_group(connection, compiled.name, key)
        a_failed_group(connection, compiled.name, key, "DIVIDE_BY_ZERO")

    def left() -> list[str]:
        query = (
            """SELECT "group" ->> 0 FROM truelog.oversized_group WHERE view = %(view)s UNION ALL """
            """SELECT "group" ->> 0 FROM truelog.failed_group WHERE view = %(view)s"""
        )
        return sorted(str(url) for (url,) in connection.execute(query, {"view": compiled.name}).fetchall())

    now = NOON + timedelta(days=2, hours=12)  # rows stay for a day
    merge.drop_expired_at(connection, compiled, "batch", now)
    assert left() == ["new", "new", "old", "old"]
    merge.drop_expired_at(connection, compiled, "state", now)
    assert left() == ["new", "new"]
