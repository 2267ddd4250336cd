"""Keeps one view of a stream application up to date, with its own connection and thread.

A failing or slow view stays at its positions and does not delay other views. A batch that arrives while the view is
busy only advances the view's target. The view then applies the missing records in portions (`Portions`). After each
failure, the view waits longer before the next attempt.

More batches arrive while the view applies a portion, so even a fast view could stay behind the batches forever. A
batch therefore waits for a view that has nearly caught up (`is_nearly_caught_up`). The view is then where the next
batch begins and takes part in that batch.
"""

import logging
import math
import threading
import time
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from datetime import UTC, datetime

import psycopg

from truelog.control import view_status
from truelog.kernel import merge
from truelog.kernel.apply_batch import BatchApplier, EventRange
from truelog.log.positions import Positions
from truelog.storage.database import Connection, connect
from truelog.streaming.portions import Portions
from truelog.support.errors import Fenced
from truelog.support.settings import Settings
from truelog.tables.compiled_view import CompiledView
from truelog.tables.staging.repeated_plans import RepeatedPlans

_LONGEST_PAUSE = 60.0  # seconds
_BLOCKING = """
    SELECT format('process %%s (%%s)', pid, coalesce(nullif(application_name, ''), 'no name')) FROM pg_stat_activity
    WHERE pid = ANY(pg_blocking_pids(%s)) ORDER BY pid
"""

log = logging.getLogger("truelog.stream")


@dataclass
class ViewWorker:
    """One view of a stream; `positions` is None if the positions must be read from the database."""

    portions: Portions
    applier: BatchApplier
    compiled: CompiledView
    repeated: RepeatedPlans | None = None
    connection: Connection | None = None
    positions: Positions | None = None
    target: Positions = field(default_factory=Positions)  # the end of the newest batch
    busy: bool = False
    task: "Future[None] | None" = None  # the view's newest task
    reported: str = ""  # the last stored reason why the view is stalled
    step_seconds: float = math.inf  # duration of the last step
    step_began: datetime | None = None  # when the current step began; None between steps
    failures: int = 0  # consecutive failures
    paused_until: float = 0.0
    stopping: threading.Event = field(default_factory=threading.Event)  # the application is about to exit
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)  # guards `target` and `busy`

    def offer(self, batch: EventRange, pool: Executor) -> "Future[None] | None":
        """Advance the view's target to the batch's end. If the view is free, it catches up in a task of the pool."""
        with self._lock:
            self.target = batch.end.only(self.compiled.view.topics)
            if self.busy or time.monotonic() < self.paused_until:
                return None
            self.busy = True
        self.task = pool.submit(self.catch_up, batch)
        return self.task

    def soon_free(self, batch_end: Positions) -> bool:
        """Whether the view is busy but will soon be free if no batch begins past `batch_end`."""
        positions = self.positions
        if not self.busy or positions is None or self._step_lasts() > self.applier.settings.batch_grace_seconds:
            return False
        end = batch_end.only(self.compiled.view.topics)
        return is_nearly_caught_up(self.applier.settings, positions, end, self.step_seconds)

    def catch_up(self, batch: EventRange) -> None:
        """Apply the batch and all later records to the view. If that fails, store the reason and pause the view.

        Raises:
            Fenced: a successor is running, so this process must exit.
        """
        try:
            while not self._is_done():
                self.step_began = datetime.now(UTC)
                self._step(batch)
                self.step_seconds, self.step_began = self._step_lasts(), None
        except Fenced:
            raise
        except Exception as error:
            self.failures += 1
            pause = min(_LONGEST_PAUSE, 0.25 * 2**self.failures)
            log.exception("%s is stalled; next attempt with the first batch after %.1f s", self.compiled.name, pause)
            try:
                self._report(f"{type(error).__name__}: {error}")
            finally:
                self._reset(pause)

    def forget_outage(self) -> None:
        """After an outage of the database, read the positions again and try again at once."""
        self.failures, self.paused_until = 0, 0.0
        with self._lock:
            if not self.busy and self.connection is not None:
                self.connection.close()
                self.connection = self.positions = None

    def report_hang(self, connection: Connection) -> None:
        """If the current step has run for too long, report the view as stalled, and what it is waiting for now."""
        began, working = self.step_began, self.connection
        if began is None or self._step_lasts() < self.applier.settings.hang_seconds:
            return
        blocking = connection.execute(_BLOCKING, (working.info.backend_pid,)).fetchall() if working else []
        waits = f"It is waiting for a lock held by PostgreSQL {', '.join(str(row[0]) for row in blocking)}."
        self._report(
            f"The step that began at {began:%Y-%m-%d %H:%M:%S} UTC has not ended. "
            f"{waits if blocking else 'It is not waiting for a lock.'}"
        )

    def load_positions(self) -> Positions:
        """The view's positions, read from the database if this process does not have them."""
        if self.connection is None:
            holder = self.applier.holder
            writer = holder.application if holder else None
            self.connection = connect(self.applier.settings, autocommit=True, writer=writer)
        if self.positions is None:
            self.positions = merge.positions(self.connection, self.compiled)
        return self.positions

    def retire(self) -> None:
        """Stop after the current step, because the view was removed, suspended or replaced."""
        self.stopping.set()
        if not self.busy and self.connection is not None:
            self.connection.close()

    def _step_lasts(self) -> float:
        """How long the current step has run, in seconds."""
        began = self.step_began
        return (datetime.now(UTC) - began).total_seconds() if began else 0.0

    def _is_done(self) -> bool:
        """Whether the view has reached its target. Then it is reported as up to date, and another task may begin."""
        positions = self.load_positions()
        positions.require_same_topics(self.target)
        if self._is_behind(positions):
            return False
        self.failures = 0
        self._report("")  # while the view is busy: a later report would replace that of the next task
        with self._lock:
            self.busy = self._is_behind(positions)
            return not self.busy

    def _is_behind(self, positions: Positions) -> bool:
        return not self.stopping.is_set() and not positions.covers(self.target)

    def _step(self, batch: EventRange) -> None:
        names, positions = self.compiled.view.topics, self.load_positions()
        in_batch = positions.covers(batch.begin.only(names)) and not positions.covers(batch.end.only(names))
        assert self.connection is not None  # noqa: S101
        if in_batch:
            self.positions = self.applier.apply(self.connection, self.compiled, batch, positions, self.repeated)
            return
        again = self.failures > 0
        with self.portions.next(self.connection, self.compiled, (positions, self.target), again=again) as portion:
            self.positions = self.applier.apply(self.connection, self.compiled, portion, positions, self.repeated)

    def _report(self, reason: str) -> None:
        """If the reason has changed, store why the view is stalled, or that it is not, on a separate connection.

        A worker that is stopping reports nothing: the view may have a new worker already, or none.
        """
        holder = self.applier.holder
        if holder is None or reason == self.reported or self.stopping.is_set():
            return
        try:
            with connect(self.applier.settings) as connection:
                view = self.compiled.name, self.compiled.view.version
                view_status.report(connection, holder.application, *view, reason)
            self.reported = reason
        except psycopg.Error as error:
            log.warning(
                "%s: the state could not be stored; the next attempt will store it: %s", self.compiled.name, error
            )

    def _reset(self, pause: float) -> None:
        """Discard the state after a failure: only the database has the positions, and the connection may be broken."""
        if self.connection is not None:
            self.connection.close()
        self.connection = self.positions = self.step_began = None
        with self._lock:
            self.busy, self.paused_until = False, time.monotonic() + pause


def is_nearly_caught_up(settings: Settings, positions: Positions, end: Positions, step_seconds: float) -> bool:
    """Whether one more portion brings a view to the end and the view's last step took no longer than a batch waits.

    No batch waits for a view with slow steps, because that view would delay the others in each batch.
    """
    if step_seconds > settings.batch_grace_seconds:
        return False
    return positions.portion_to(end, settings.max_offsets_per_trigger).covers(end)
