"""The merge's protocol, without Spark: what it checks before it writes, and what it writes in one transaction."""

import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import psycopg
import pytest
from psycopg import sql
from pyspark.sql.types import IntegerType, TimestampType

from tests.beds.lab import with_own
from tests.builders.log import a_tick
from tests.deadline import deadline, until
from tests.library.kernel.zombie import EVENTS, at, counter, stage_events
from truelog import Sum, View
from truelog.control import lease
from truelog.kernel import merge
from truelog.kernel.exclusions import Excluded
from truelog.kernel.merge import Merge
from truelog.log.positions import Positions
from truelog.storage.database import Connection, connect
from truelog.support.errors import (
    Fenced,
    Gap,
    MeaningChanged,
    PartitionsAdded,
    ServiceDown,
    StagingTorn,
    Stale,
    TopicRecreated,
)
from truelog.support.settings import Settings
from truelog.tables import deploy as table
from truelog.tables import stage
from truelog.tables.compiled_view import CompiledView
from truelog.tables.stage import StagedRows
from truelog.tables.table import Table

BAD = Excluded("page_view", 0, 7, "DIVIDE_BY_ZERO")


@dataclass
class Bench:
    """A view that counts each event under its id."""

    connection: Connection
    compiled: CompiledView

    def staged(self, begin: int = 0) -> StagedRows:
        return stage_events(self.connection, self.compiled, begin)

    def apply(self, begin: Positions, end: Positions, staged: StagedRows, *excluded: Excluded) -> None:
        merge.apply(self.connection, self.compiled, Merge(begin, end, staged, excluded, 0.5))

    def counts(self) -> dict[object, object]:
        rows = self.connection.execute(f'SELECT event_id, n FROM state."{self.compiled.own.name}"'.encode()).fetchall()
        return {event_id: n for event_id, n in rows}  # noqa: C416 — mypy knows no pair in a row

    def positions(self) -> Positions:
        return merge.positions(self.connection, self.compiled)

    def ask(self, query: str) -> list[tuple[object, ...]]:
        return self.connection.execute(query.encode(), (self.compiled.name,)).fetchall()

    def state(self) -> tuple[object, ...]:
        """Everything that a merge writes."""
        excluded = self.ask('SELECT topic, partition, "offset", error FROM truelog.exclusion WHERE view = %s')
        tally = self.ask("SELECT merges, rows, preparing, merging > 0 FROM truelog.merge_tally WHERE view = %s")
        staged = self.connection.execute(f'SELECT _attempt FROM stage."{self.compiled.own.name}"'.encode()).fetchall()
        return self.counts(), self.positions(), self.positions().ids, excluded, tally, staged


@pytest.fixture
def bench(connection: Connection) -> Bench:
    compiled = counter(f"v{uuid.uuid4().hex[:8]}")
    table.deploy_table(connection, compiled)
    return Bench(connection, compiled)


def test_a_merge_writes_rows_positions_exclusions_and_its_tally(bench: Bench) -> None:
    bench.apply(at(0), at(EVENTS), bench.staged(), BAD)
    once = {f"e{number}": 1 for number in range(EVENTS)}
    assert bench.state() == (
        once,
        at(EVENTS),
        {"page_view": "an-id"},
        [("page_view", 0, 7, "DIVIDE_BY_ZERO")],
        [(1, EVENTS, 0.5, True)],
        [],
    )
    bench.apply(at(EVENTS), at(EVENTS + 3), bench.staged(7), BAD)
    assert bench.counts() == once | {"e7": 2, "e8": 2, "e9": 2}
    assert bench.positions() == at(EVENTS + 3)
    assert bench.state()[4] == [(2, EVENTS + 3, 1.0, True)]


def test_topics_that_the_view_does_not_read_leave_no_position(bench: Bench) -> None:
    both = Positions({"page_view": {0: EVENTS}, "search": {0: 4}}, {"page_view": "an-id", "search": "x"})
    bench.apply(at(0), both, bench.staged())
    assert bench.positions() == at(EVENTS)


def test_only_the_positions_that_change_are_written(bench: Bench) -> None:
    """So a batch of some partitions leaves no old versions of the rows of the others."""

    def written(*offsets: int) -> dict[object, object]:
        end = Positions({"page_view": dict(enumerate(offsets))}, {"page_view": "an-id"})
        bench.apply(bench.positions(), end, stage.NO_ROWS)
        assert bench.positions() == end
        rows = bench.ask("SELECT partition, xmin::text FROM truelog.position WHERE view = %s")
        return {each[0]: each[1] for each in rows}

    first, second, third = written(3, 4), written(3, 5), written(3, 6, 0)
    assert first[0] == second[0] == third[0]
    assert len({first[1], second[1], third[1]}) == 3
    assert third[2] == third[1]


def test_a_range_without_rows_advances_the_positions(bench: Bench) -> None:
    bench.apply(at(0), at(5), stage.NO_ROWS)
    assert (bench.counts(), bench.positions()) == ({}, at(5))


@pytest.mark.parametrize(
    ("begin", "refusal", "message"),
    [
        ({"page_view": {0: 4}}, Stale, "is at page_view 0:5, but this batch begins at 4. Is another process running?"),
        ({"page_view": {0: 6}}, Gap, "is at page_view 0:5, but this batch begins at 6. Read from 5 on."),
        ({"page_view": {0: 5, 1: 1}}, Gap, "is at page_view 1:0, but this batch begins at 1"),
        ({}, Stale, "is at page_view 0:5, but this batch begins at 0"),
    ],
    ids=["replay", "gap", "gap in a new partition", "no positions"],
)
def test_a_batch_with_another_begin_changes_nothing(
    bench: Bench, begin: dict[str, dict[int, int]], refusal: type[Exception], message: str
) -> None:
    bench.apply(at(0), at(5), bench.staged())
    before, again = bench.state(), bench.staged()
    with pytest.raises(refusal, match=message.replace(".", r"\.").replace("?", r"\?")):
        bench.apply(Positions(begin, {"page_view": "an-id"}), at(9), again, BAD)
    stage.clear(bench.connection, bench.compiled, again)
    assert bench.state() == before


def test_a_recreated_topic_is_refused(bench: Bench) -> None:
    bench.apply(at(0), at(5), bench.staged())
    before, again = bench.state(), bench.staged()
    with pytest.raises(TopicRecreated):
        bench.apply(Positions({"page_view": {0: 5}}, {"page_view": "another"}), at(9), again, BAD)
    stage.clear(bench.connection, bench.compiled, again)
    assert bench.state() == before


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ("DELETE FROM {} WHERE event_id = 'e3'", "10 rows were loaded, but the staging table has 9. "),
        # As many rows as before, but other rows: the sum of the hashes that the rows carry is different.
        (
            "INSERT INTO {0} SELECT * FROM {0} WHERE event_id = 'e4'; DELETE FROM {0} WHERE event_id = 'e3'",
            "the staging table has 10 with different content",
        ),
        ("TRUNCATE {}", "the staging table has 0"),
    ],
    ids=["a row is lost", "another row in its place", "emptied by a crash"],
)
def test_staged_rows_that_are_not_the_loaded_rows_are_refused(bench: Bench, damage: str, message: str) -> None:
    """A change within a row is not found: the merge compares the hash that a row carries, and computes none."""
    staged = bench.staged()
    bench.connection.execute(sql.SQL(damage).format(stage.table(bench.compiled.own)))
    with pytest.raises(StagingTorn, match=message):
        bench.apply(at(0), at(5), staged)
    assert (bench.counts(), bench.positions()) == ({}, Positions())


def test_only_the_accepted_attempts_are_merged_and_cleared(bench: Bench) -> None:
    abandoned, winner, second, late = (bench.staged(begin) for begin in (0, 0, 8, 0))
    both = StagedRows(winner.attempts + second.attempts, 12, winner.hash + second.hash)
    with pytest.raises(StagingTorn):
        bench.apply(at(0), at(5), replace(both, attempts=winner.attempts))
    bench.apply(at(0), at(5), replace(winner))
    assert set(bench.counts().values()) == {1}
    left = {attempt for (attempt,) in bench.state()[5]}  # type: ignore[attr-defined]
    assert left == {*abandoned.attempts, *second.attempts, *late.attempts}


def test_a_merge_holds_the_views_lock_until_it_ends(bench: Bench, postgresql: Settings) -> None:
    other = "SELECT FROM truelog.view WHERE view = %s FOR UPDATE NOWAIT"
    with bench.connection.transaction():
        merge.lock(bench.connection, bench.compiled)
        with connect(postgresql, autocommit=True) as second, pytest.raises(psycopg.errors.LockNotAvailable):
            second.execute(other, (bench.compiled.name,))


def test_a_merge_waits_for_the_views_lock_and_for_no_other(bench: Bench, postgresql: Settings) -> None:
    other = counter(bench.compiled.name, version=2)
    table.deploy_table(bench.connection, other)
    staged = bench.staged()
    with connect(postgresql) as repairing:
        merge.lock(repairing, bench.compiled)
        bench.connection.execute("SET lock_timeout = '100ms'")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            bench.apply(at(0), at(5), staged)
        merge.apply(bench.connection, other, Merge(at(0), at(5), stage.NO_ROWS))
    bench.apply(at(0), at(5), staged)


def test_a_merge_compares_positions_when_it_has_the_lock(bench: Bench, postgresql: Settings) -> None:
    """The second merge waits while the first one adds the same events."""
    batches = [Merge(at(0), at(EVENTS), bench.staged()) for _ in range(2)]
    with connect(postgresql, autocommit=True) as first, ThreadPoolExecutor(1) as pool:
        with first.transaction():
            merge.lock(first, bench.compiled)
            second = pool.submit(merge.apply, bench.connection, bench.compiled, batches[1])
            until(lambda: _require_waiting(first, bench.connection.info.backend_pid), 20, "the second merge to wait")
            merge.apply(first, bench.compiled, batches[0])
        with pytest.raises(Stale):
            second.result(deadline(20))
    assert set(bench.counts().values()) == {1}


def _require_waiting(connection: Connection, process: int) -> None:
    if connection.execute("SELECT cardinality(pg_blocking_pids(%s))", (process,)).fetchone() == (0,):
        raise ServiceDown("the merge does not wait yet")


def test_records_judged_by_another_reading_are_refused(bench: Bench) -> None:
    other = counter(bench.compiled.name, version=2)
    table.deploy_table(bench.connection, other)
    merge.apply(bench.connection, other, Merge(at(0), at(5), stage.NO_ROWS, readings={"page_view": 1}))
    bench.apply(at(0), at(5), bench.staged())
    bench.apply(at(5), at(6), stage.NO_ROWS)  # the other version's reading is of no concern

    for view, reading, judged in ((bench.compiled, 0, {"page_view": 1}), (other, 1, {})):
        before = merge.positions(bench.connection, view)
        message = f"under reading {reading}, but this process judges it by reading {1 - reading}"
        with pytest.raises(MeaningChanged, match=message):
            merge.apply(bench.connection, view, Merge(before, at(7), stage.NO_ROWS, readings=judged))
        assert merge.positions(bench.connection, view) == before


def test_the_epochs_of_a_view_are_those_of_its_own_last_merge(bench: Bench) -> None:
    other = counter(bench.compiled.name, version=2)
    table.deploy_table(bench.connection, other)
    merge.apply(bench.connection, other, Merge(at(0), at(5), stage.NO_ROWS, epochs={("page_view", 0): 3}))
    assert merge.leader_epochs(bench.connection, bench.compiled) == {}
    two = Positions({"page_view": {0: 1, 1: 1}}, {"page_view": "an-id"})
    merge.apply(bench.connection, bench.compiled, Merge(at(0), two, stage.NO_ROWS, epochs={("page_view", 0): 8}))
    assert merge.leader_epochs(bench.connection, bench.compiled) == {("page_view", 0): 8}
    merge.apply(bench.connection, bench.compiled, Merge(two, two, stage.NO_ROWS, epochs={("page_view", 0): 9}))
    assert merge.leader_epochs(bench.connection, bench.compiled) == {("page_view", 0): 9}
    assert merge.leader_epochs(bench.connection, other) == {("page_view", 0): 3}


def test_a_merge_drops_the_rows_that_its_ticks_expire(connection: Connection) -> None:
    view = View(
        reads=("page_view",), transform=lambda page_view: page_view, key=("at",), measures={"n": Sum()}, keep="1 hour"
    )
    compiled = CompiledView(
        (Table(f"v{uuid.uuid4().hex[:8]}", view, {"at": TimestampType(), "n": IntegerType()}, "kept"),)
    )
    table.deploy_table(connection, compiled)
    clock = compiled.name  # the id of the topic with the ticks
    a_tick(connection, clock, 0, datetime(2026, 3, 1, 2, tzinfo=UTC), Positions())
    connection.execute(
        sql.SQL(
            "INSERT INTO {} (_attempt, _row_hash, at, n) VALUES ('a', 1, '2026-03-01 00:30Z', 1), "
            "('a', 1, '2026-03-01 01:30Z', 1)"
        ).format(stage.table(compiled.own))
    )
    ids = {"page_view": "an-id", "ticks": clock}
    begin, end = (Positions({"page_view": {0: o}, "ticks": {0: o}}, ids) for o in (0, 1))
    merge.apply(connection, compiled, Merge(begin, end, StagedRows(("a",), 2, 2)))
    left = connection.execute(f'SELECT at FROM state."{compiled.own.name}"'.encode()).fetchall()
    assert left == [(datetime(2026, 3, 1, 1, 30, tzinfo=UTC),)]


def test_a_lease_that_is_over_is_refused_before_anything_is_written(bench: Bench, postgresql: Settings) -> None:
    held = lease.take_lease(postgresql, f"app-{bench.compiled.name}")
    over = replace(held.holder, epoch=held.holder.epoch - 1)
    staged = bench.staged()
    before = bench.state()
    try:
        with pytest.raises(Fenced):
            merge.apply(bench.connection, bench.compiled, Merge(at(0), at(5), staged), over)
        assert bench.state() == before
        merge.apply(bench.connection, bench.compiled, Merge(at(0), at(5), staged), held.holder)
    finally:
        held.release()
    assert bench.positions() == at(5)


def grown(offset: int, partitions: int) -> Positions:
    return Positions({"page_view": dict.fromkeys(range(partitions), offset)}, {"page_view": "an-id"})


@pytest.mark.parametrize("ordered", ["dedupe", "reads_offsets"])
def test_a_view_that_needs_order_refuses_a_batch_with_a_new_partition(bench: Bench, ordered: str) -> None:
    """The events of a key may be in two partitions from then on. No plan needs to notice it before the merge."""
    own = bench.compiled.own
    declared = {"view": replace(own.view, dedupe="1 hour")} if ordered == "dedupe" else {"reads_offsets": True}
    view = Bench(bench.connection, with_own(bench.compiled, **declared))
    end = grown(EVENTS, 2)
    merge.apply(view.connection, with_own(bench.compiled), Merge(grown(0, 2), end, view.staged()))
    staged = view.staged()
    before = view.state()
    with pytest.raises(PartitionsAdded, match="partitions were added to page_view"):
        view.apply(grown(EVENTS, 2), grown(EVENTS + 1, 3), staged)
    assert view.state() == before
    view.apply(end, grown(EVENTS + 1, 2), staged)


def test_any_other_view_merges_a_new_partition(bench: Bench) -> None:
    bench.apply(grown(0, 2), grown(EVENTS, 2), bench.staged())
    bench.apply(grown(EVENTS, 2), grown(EVENTS + 1, 3), stage.NO_ROWS)
    assert bench.positions() == grown(EVENTS + 1, 3)
