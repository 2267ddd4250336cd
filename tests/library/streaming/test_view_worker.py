"""A view whose merge hangs: it is reported with its reason, and no batch waits for it."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
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
from truelog.streaming.view_worker import ViewWorker
from truelog.support.errors import ServiceDown
from truelog.support.settings import Settings
from truelog.tables.compiled_view import CompiledView
from truelog.tables.staging.repeated_plans import RepeatedPlans
from truelog.tables.table import Table

NAME = "hanging"
TABLE = sql.Identifier("state", NAME)
VIEW = View(reads=("click",), transform=lambda click: click, key=("url",), measures={})
COMPILED = CompiledView((Table(NAME, VIEW, {}, ""),))
BATCH = EventRange({}, Positions({"click": {0: 0}}), Positions({"click": {0: 1}}))


@dataclass(frozen=True)
class LockingApplier(BatchApplier):
    """Merges by writing to the view's table and nothing else."""

    def apply(
        self,
        connection: Connection,
        compiled: CompiledView,
        batch: EventRange,
        begin: Positions,
        repeated: RepeatedPlans | None = None,
    ) -> Positions:
        connection.execute(sql.SQL("INSERT INTO {} VALUES (1)").format(TABLE))
        return batch.end


@dataclass(frozen=True)
class FailingApplier(BatchApplier):
    """Fails in each batch."""

    def apply(self, *_: Any) -> Positions:
        raise ValueError("no")


@pytest.fixture
def worker(postgresql: Settings, connection: Connection) -> Iterator[ViewWorker]:
    settings = postgresql.model_copy(update={"hang_seconds": 600.0, "batch_grace_seconds": 0.5})
    connection.execute(sql.SQL("CREATE TABLE {} (n integer)").format(TABLE))
    view_status.record_state(connection, NAME, NAME, 1)
    applier = LockingApplier(settings, Holder(NAME, 1))
    yield ViewWorker(cast(Any, None), applier, COMPILED, positions=BATCH.begin)
    connection.execute(sql.SQL("DROP TABLE {}").format(TABLE))
    forget(connection, NAME)


def test_a_hanging_merge_is_reported_with_what_it_waits_for(
    postgresql: Settings, connection: Connection, worker: ViewWorker
) -> None:
    with connect(postgresql) as locking, ThreadPoolExecutor(1) as pool:
        locking.execute(sql.SQL("LOCK TABLE {} IN SHARE MODE").format(TABLE))
        task = worker.offer(BATCH, pool)
        assert task is not None
        until(lambda: _require_blocked(connection, locking.info.backend_pid), 20, "the merge to wait for the lock")
        worker.report_hang(connection)
        assert _reported(connection).state != view_status.STALLED, "a step may take some time"
        impatient = worker.applier.settings.model_copy(update={"hang_seconds": 0.0, "batch_grace_seconds": 0.0})
        worker.applier = replace(worker.applier, settings=impatient)
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


def test_a_view_takes_no_other_batch_before_its_state_is_stored(
    worker: ViewWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the late state of one batch could replace that of the next."""
    stored: list[tuple[str, bool]] = []
    monkeypatch.setattr(view_status, "report", lambda *row: stored.append((row[-1], worker.busy)))
    healthy, worker.applier = worker.applier, FailingApplier(worker.applier.settings, worker.applier.holder)
    worker.busy, worker.target = True, BATCH.end
    worker.catch_up(BATCH)
    worker.busy, worker.applier, worker.positions = True, healthy, BATCH.begin
    worker.catch_up(BATCH)
    assert stored == [("ValueError: no", True), ("", True)]
    assert not worker.busy


def test_a_view_whose_state_cannot_be_stored_tries_again(worker: ViewWorker, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise psycopg.errors.ReadOnlySqlTransaction("the server is a standby now")

    monkeypatch.setattr(view_status, "report", refuse)
    worker.applier = FailingApplier(worker.applier.settings, worker.applier.holder)
    worker.busy, worker.target = True, BATCH.end
    worker.catch_up(BATCH)
    assert not worker.busy
    assert worker.positions is None, "they are read from the database again"


def test_a_worker_that_ends_late_leaves_the_row_of_the_new_version(worker: ViewWorker, connection: Connection) -> None:
    """A deployment has recorded version 2 while the worker of version 1 was in its last step."""
    view_status.record_state(connection, NAME, NAME, 2)
    worker.applier = FailingApplier(worker.applier.settings, worker.applier.holder)
    worker.busy, worker.target = True, BATCH.end
    worker.catch_up(BATCH)
    found = connection.execute("SELECT version, state FROM truelog.standing WHERE view = %s", (NAME,)).fetchall()
    assert found == [(2, view_status.UP_TO_DATE)]


def _reported(connection: Connection) -> view_status.ViewStatus:
    [found] = [each for each in view_status.view_statuses(connection) if each.view == NAME]
    return found


def _require_blocked(connection: Connection, process: int) -> None:
    query = "SELECT FROM pg_stat_activity WHERE %s = ANY(pg_blocking_pids(pid))"
    if connection.execute(query, (process,)).fetchone() is None:
        raise ServiceDown("nothing waits yet")
