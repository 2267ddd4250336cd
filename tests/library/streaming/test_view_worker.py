"""A view between its two threads: the states that they store, the targets that they agree on, and what each writes."""

import os
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import psycopg
import pytest
from psycopg import sql

from tests.builders.views import forget
from tests.deadline import deadline, until
from truelog import View
from truelog.control import view_status
from truelog.control.lease import Holder
from truelog.kernel.apply_batch import BatchApplier, EventRange
from truelog.log.positions import Positions
from truelog.storage.database import Connection, connect
from truelog.streaming.view_task import Progress, StreamedView, ViewTask
from truelog.streaming.view_worker import ViewWorker
from truelog.support.errors import ServiceDown
from truelog.support.settings import Settings
from truelog.tables.compiled_view import CompiledView
from truelog.tables.staging.event_files import EventFiles
from truelog.tables.table import Table

NAME = "hanging"
TABLE = sql.Identifier("state", NAME)
VIEW = View(reads=("click",), transform=lambda click: click, key=("url",), measures={})
COMPILED = CompiledView((Table(NAME, VIEW, {}, ""),))
MAY_MERGE = threading.Event()


def batch(begin: int) -> EventRange:
    return EventRange({}, Positions({"click": {0: begin}}), Positions({"click": {0: begin + 1}}))


BATCH = batch(0)


@dataclass(frozen=True)
class LockingApplier(BatchApplier):
    """Merges by writing to the view's table and nothing else."""

    def apply(self, *given: Any) -> Positions:
        connection, _, applied, *_ = given
        connection.execute(sql.SQL("INSERT INTO {} VALUES (1)").format(TABLE))
        return cast(EventRange, applied).end


@dataclass(frozen=True)
class RecordingApplier(BatchApplier):
    """Merges nothing, and remembers what it applies."""

    applied: list[EventRange] = field(default_factory=list)

    def apply(self, *given: Any) -> Positions:
        self.applied.append(given[2])
        return cast(EventRange, given[2]).end


@dataclass(frozen=True)
class FailingApplier(BatchApplier):
    """Fails in each batch."""

    def apply(self, *_: Any) -> Positions:
        raise ValueError("no")


@dataclass(frozen=True)
class WaitingApplier(BatchApplier):
    """Merges nothing, as soon as it may merge."""

    def apply(self, *given: Any) -> Positions:
        assert MAY_MERGE.wait(deadline(20))
        return cast(EventRange, given[2]).end


class Portions:
    """The portions of a log without records."""

    @contextmanager
    def next(self, _: object, __: object, span: tuple[Positions, Positions], *, again: bool) -> Iterator[EventRange]:
        yield EventRange({}, *span)


@pytest.fixture
def worker(postgresql: Settings, connection: Connection) -> Iterator[ViewWorker]:
    """The worker of a view that is where the first batch begins."""
    settings = postgresql.model_copy(update={"hang_seconds": 600.0, "batch_grace_seconds": 0.5})
    connection.execute(sql.SQL("CREATE TABLE {} (n integer)").format(TABLE))
    view_status.record_state(connection, NAME, NAME, 1)
    worker = ViewWorker(StreamedView(cast(Any, Portions()), LockingApplier(settings, Holder(NAME, 1)), COMPILED))
    begin_at(worker, BATCH.begin)
    yield worker
    worker.retire()
    connection.execute(sql.SQL("DROP TABLE {}").format(TABLE))
    forget(connection, NAME)


@pytest.fixture
def stored(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The states that were stored, in their order."""
    reasons: list[str] = []
    monkeypatch.setattr(view_status, "report", lambda *row: reasons.append(row[-1]))
    return reasons


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as pool:
        yield pool


def begin_at(worker: ViewWorker, positions: Positions) -> None:
    connection = connect(worker.view.applier.settings, autocommit=True)
    worker.task = ViewTask(worker.view, Progress(connection, positions))


def apply(worker: ViewWorker, applier: type[BatchApplier]) -> None:
    """Apply the first batch in this thread."""
    set_applier(worker, applier)
    worker.task = ViewTask(worker.view, worker.task.progress, BATCH.end)
    worker.task.run(BATCH)


def set_applier(worker: ViewWorker, applier: type[BatchApplier], **settings: float) -> None:
    former = worker.view.applier
    worker.view.applier = applier(former.settings.model_copy(update=settings), former.holder)


def begin_hanging(worker: ViewWorker, pool: ThreadPoolExecutor) -> "Future[None]":
    """A task in a step that hangs until it may merge."""
    MAY_MERGE.clear()
    set_applier(worker, WaitingApplier, hang_seconds=1e-9)
    task = worker.offer(BATCH, pool)
    assert task is not None
    until(lambda: _require(worker.task.progress.step_began is not None), 20, "the step to begin")
    return task


def test_a_hanging_merge_is_reported_with_what_it_waits_for(
    postgresql: Settings, connection: Connection, worker: ViewWorker, pool: ThreadPoolExecutor
) -> None:
    with connect(postgresql) as locking:
        locking.execute(sql.SQL("LOCK TABLE {} IN SHARE MODE").format(TABLE))
        task = worker.offer(BATCH, pool)
        assert task is not None
        until(lambda: _require_blocked(connection, locking.info.backend_pid), 20, "the merge to wait for the lock")
        worker.report_hang(connection)
        assert _reported(connection).state != view_status.STALLED, "a step may take some time"
        set_applier(worker, LockingApplier, hang_seconds=1e-9, batch_grace_seconds=0.0)
        worker.report_hang(connection)
        found = _reported(connection)
        assert (found.state, found.reason.partition(" UTC ")[2]) == (
            "STALLED",
            f"has not ended. It is waiting for a lock held by PostgreSQL process {locking.info.backend_pid} (no name).",
        )
        assert not worker.soon_free(BATCH.end), "a batch would wait for the view"
        locking.rollback()
        task.result(deadline(10))
    assert _reported(connection).state == view_status.STOPPED, "no application is running, and the view is not stalled"


def test_a_view_is_up_to_date_if_its_step_ends_while_the_application_stores_a_hang(
    connection: Connection, worker: ViewWorker, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored: list[bool] = []

    def report(*row: Any) -> None:
        if row[-1]:
            MAY_MERGE.set()
            until(lambda: _require(worker.task.progress.step_began is None), 20, "the step to end")
        stored.append(bool(row[-1]))

    monkeypatch.setattr(view_status, "report", report)
    task = begin_hanging(worker, pool)
    worker.report_hang(connection)
    task.result(deadline(10))
    assert stored == [True, False]


def test_no_hang_is_stored_of_a_step_that_has_ended_meanwhile(
    worker: ViewWorker, pool: ThreadPoolExecutor, stored: list[str]
) -> None:
    def execute(*_: object) -> Any:
        """The application asks PostgreSQL what the step is waiting for."""
        MAY_MERGE.set()
        task.result(deadline(10))
        return SimpleNamespace(fetchall=list)

    task = begin_hanging(worker, pool)
    worker.report_hang(cast(Any, SimpleNamespace(execute=execute)))
    assert stored == []


def test_a_view_takes_no_other_batch_before_its_state_is_stored(
    worker: ViewWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the late state of one batch could replace that of the next."""
    stored: list[tuple[str, bool]] = []
    monkeypatch.setattr(view_status, "report", lambda *row: stored.append((row[-1], worker.task.is_over)))
    apply(worker, FailingApplier)
    begin_at(worker, BATCH.begin)
    apply(worker, LockingApplier)
    assert stored == [("ValueError: no", False), ("", False)]
    assert worker.task.is_over


def test_a_view_whose_state_cannot_be_stored_tries_again(worker: ViewWorker, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise psycopg.errors.ReadOnlySqlTransaction("the server is a standby now")

    monkeypatch.setattr(view_status, "report", refuse)
    apply(worker, FailingApplier)
    assert worker.task.is_over
    assert worker.task.progress.positions is None, "they are read from the database again"


def test_a_worker_that_ends_late_leaves_the_row_of_the_new_version(worker: ViewWorker, connection: Connection) -> None:
    """A deployment has recorded version 2 while the worker of version 1 was in its last step."""
    view_status.record_state(connection, NAME, NAME, 2)
    apply(worker, FailingApplier)
    found = connection.execute("SELECT version, state FROM truelog.standing WHERE view = %s", (NAME,)).fetchall()
    assert found == [(2, view_status.UP_TO_DATE)]


def test_an_outage_ends_the_pause_of_a_view_that_has_failed(worker: ViewWorker, stored: list[str]) -> None:
    apply(worker, FailingApplier)
    first = worker.task.progress
    apply(worker, FailingApplier)
    second = worker.task.progress
    assert (first.failures, second.failures) == (1, 2)
    assert second.paused_until > first.paused_until > time.monotonic()
    worker.forget_outage()
    assert worker.task.progress == Progress()
    assert stored == ["ValueError: no"], "the reason has not changed"


def test_a_failure_is_the_first_if_an_outage_has_ended_since_the_step_began(
    worker: ViewWorker, stored: list[str]
) -> None:
    worker.task = ViewTask(worker.view, Progress(worker.task.progress.connection, BATCH.begin, failures=9), BATCH.end)
    set_applier(worker, FailingApplier)
    worker.forget_outage()
    worker.task.run(BATCH)
    assert (worker.task.progress.failures, stored) == (1, ["ValueError: no"])


class Yielding(Positions):
    """Positions that let the other thread run while they are compared."""

    compared = threading.Semaphore(0)

    def covers(self, other: Positions) -> bool:
        found = super().covers(other)
        Yielding.compared.release()
        os.sched_yield()
        return found


@dataclass(frozen=True)
class YieldingApplier(BatchApplier):
    """Merges nothing."""

    def apply(self, *given: Any) -> Positions:
        return Yielding(cast(EventRange, given[2]).end.offsets)


@pytest.mark.parametrize("comparisons", [3, 4])
def test_no_target_is_overlooked(
    worker: ViewWorker, pool: ThreadPoolExecutor, stored: list[str], comparisons: int
) -> None:
    """A batch arrives when the task has compared its new positions once or twice, so that it will soon be over."""
    set_applier(worker, YieldingApplier)
    begin_at(worker, Yielding(BATCH.begin.offsets))
    for begin in range(0, 1_000, 2):
        Yielding.compared = threading.Semaphore(0)
        first = worker.offer(batch(begin), pool)
        assert first is not None
        for _ in range(comparisons):
            assert Yielding.compared.acquire(timeout=deadline(10))
        task = worker.offer(batch(begin + 1), pool) or first
        task.result(deadline(10))
        reached = worker.task.progress.positions
        assert reached is not None
        assert reached.covers(batch(begin + 1).end)


@pytest.mark.parametrize(("pace", "first"), [(1_000.0, 200_000), (2_500.0, 450_000), (float("inf"), 450_000)])
def test_a_view_reads_a_batch_in_portions_if_it_would_take_too_long(
    worker: ViewWorker, pace: float, first: int
) -> None:
    """A third of a hang is 200 seconds here. The applier is quick, so the second step takes the rest of the batch."""
    applied: list[EventRange] = []
    connection, large = worker.task.progress.connection, EventRange({}, BATCH.begin, Positions({"click": {0: 450_000}}))
    worker.task = ViewTask(worker.view, Progress(connection, BATCH.begin, pace=pace), large.end)
    worker.view.applier = RecordingApplier(worker.view.applier.settings, worker.view.applier.holder, applied=applied)
    worker.task.run(large)
    assert (applied[0].end.at("click", 0), applied[-1].end) == (first, large.end)
    assert (applied[0] is large) == (first == 450_000)


def test_a_slow_view_takes_every_batch_for_which_it_has_plans(worker: ViewWorker) -> None:
    applied: list[EventRange] = []
    files = EventFiles(Path("of the batch"), {}, frozenset())
    small = EventRange({}, BATCH.begin, Positions({"click": {0: 450_000}}), files=files)
    worker.task = ViewTask(worker.view, replace(worker.task.progress, pace=1.0), small.end)
    worker.view.applier = RecordingApplier(worker.view.applier.settings, worker.view.applier.holder, applied=applied)
    worker.task.run(small)
    assert applied == [small]


def test_the_pace_of_a_view_follows_from_steps_with_many_records() -> None:
    began = datetime.now(UTC) - timedelta(seconds=100)
    step = Progress(None, BATCH.begin, pace=7.0, step_began=began)
    many, few = (step.after_step(cast(Any, None), Positions({"click": {0: count}})) for count in (50_000, 50))
    assert (round(many.pace, -2), few.pace) == (500.0, 7.0)


Writers = dict[str, set[bool]]


@pytest.fixture
def writers(monkeypatch: pytest.MonkeyPatch) -> Writers:
    """By the fields of a view's objects: whether their thread is this one, for each write since an object was made."""
    found: Writers = defaultdict(set)
    application = threading.get_ident()

    def record(self: Any, name: str, value: object) -> None:
        if hasattr(self, name) and not (name == "_stored" and self._lock.locked()):
            found[name].add(threading.get_ident() == application)
        object.__setattr__(self, name, value)

    for each in (ViewWorker, ViewTask, StreamedView):
        monkeypatch.setattr(each, "__setattr__", record)
    return found


def test_each_field_is_written_by_one_of_the_threads(
    connection: Connection, worker: ViewWorker, pool: ThreadPoolExecutor, stored: list[str], writers: Writers
) -> None:
    task = begin_hanging(worker, pool)
    worker.report_hang(connection)
    assert worker.offer(batch(1), pool) is None
    worker.forget_outage()
    MAY_MERGE.set()
    task.result(deadline(10))
    object.__setattr__(worker.view, "applier", FailingApplier(worker.view.applier.settings))
    failing = worker.offer(batch(2), pool)
    assert failing is not None
    failing.result(deadline(10))
    worker.forget_outage()
    worker.retire()
    assert [bool(reason) for reason in stored] == [True, False], "both threads have stored a state"
    by_application, by_task = ({name for name, by in writers.items() if mine in by} for mine in (True, False))
    assert by_application == {"applier", "task", "future", "failures", "_target"}
    assert by_task == {"progress", "is_over"}


def test_a_planted_write_by_another_thread_is_seen(
    worker: ViewWorker, pool: ThreadPoolExecutor, writers: Writers
) -> None:
    worker.forget_outage()
    pool.submit(setattr, worker.task, "failures", 1).result(deadline(10))
    pool.submit(setattr, worker.view, "_stored", "why").result(deadline(10))
    assert writers["failures"] == {True, False}
    assert writers["_stored"] == {False}, "without the lock"


def _reported(connection: Connection) -> view_status.ViewStatus:
    [found] = [each for each in view_status.view_statuses(connection) if each.view == NAME]
    return found


def _require_blocked(connection: Connection, process: int) -> None:
    query = "SELECT FROM pg_stat_activity WHERE %s = ANY(pg_blocking_pids(pid))"
    if connection.execute(query, (process,)).fetchone() is None:
        raise ServiceDown("nothing waits yet")


def _require(so: bool) -> None:
    if not so:
        raise ServiceDown("not yet")
