"""Keeps one view of a stream application up to date, with its own connection and thread.

A failing or slow view stays at its positions and does not delay other views. A batch that arrives while the view is
busy only advances the target of its task. The task then applies the missing records in portions (`Portions`). After
each failure, the view waits longer before the next attempt.

More batches arrive while the view applies a portion, so even a fast view could stay behind the batches forever. A
batch therefore waits for a view that has nearly caught up (`Progress.is_nearly_at`). The view is then where the next
batch begins and takes part in that batch.
"""

import time
from concurrent.futures import Executor, Future

from truelog.kernel.apply_batch import EventRange
from truelog.log.positions import Positions
from truelog.storage.database import Connection
from truelog.streaming.view_task import Progress, StreamedView, ViewTask

_BLOCKING = """
    SELECT format('process %%s (%%s)', pid, coalesce(nullif(application_name, ''), 'no name')) FROM pg_stat_activity
    WHERE pid = ANY(pg_blocking_pids(%s)) ORDER BY pid
"""


class ViewWorker:
    """One view of a stream. The application alone calls it and writes it, and no task has access to it.

    The application plans in one thread and applies batches in another, but never both at once (`BatchGate`).
    """

    def __init__(self, view: StreamedView) -> None:
        self.view, self.compiled = view, view.compiled
        self.task = ViewTask(view, Progress())  # the view's newest task
        self.future: Future[None] | None = None  # of the newest task that has begun

    def offer(self, batch: EventRange, pool: Executor) -> "Future[None] | None":
        """Advance the view's target to the batch's end. If the view is free, it catches up in a task of the pool."""
        target = batch.end.only(self.compiled.view.topics)
        if self.task.advance(target) or time.monotonic() < self.task.progress.paused_until:
            return None
        self.task = ViewTask(self.view, self.task.progress, target)
        self.future = pool.submit(self.task.run, batch)
        return self.future

    def soon_free(self, batch_end: Positions) -> bool:
        """Whether the view is busy but will soon be free if no batch begins past `batch_end`."""
        task, topics, settings = self.task, self.compiled.view.topics, self.view.applier.settings
        return not task.is_over and task.progress.is_nearly_at(batch_end.only(topics), settings)

    def forget_outage(self) -> None:
        """After an outage of the database, read the positions again and try again at once."""
        self.task.failures = 0
        self._disconnect()

    def report_hang(self, connection: Connection) -> None:
        """If the current step has run for too long, report the view as stalled, and what it is waiting for now."""
        task, progress = self.task, self.task.progress
        began, working = progress.step_began, progress.connection
        if began is None or progress.step_lasts() < self.view.applier.settings.hang_seconds:
            return
        blocking = connection.execute(_BLOCKING, (working.info.backend_pid,)).fetchall() if working else []
        waits = f"It is waiting for a lock held by PostgreSQL {', '.join(str(row[0]) for row in blocking)}."
        self.view.store_state(
            f"The step that began at {began:%Y-%m-%d %H:%M:%S} UTC has not ended. "
            f"{waits if blocking else 'It is not waiting for a lock.'}",
            lambda: task.progress is progress,
        )

    def retire(self) -> None:
        """Stop after the current step, because the view was removed, suspended or replaced."""
        self.view.stopping.set()
        self._disconnect()

    def _disconnect(self) -> None:
        """Close the connection and forget the positions, unless a task uses them."""
        if self.task.is_over:
            if self.task.progress.connection is not None:
                self.task.progress.connection.close()
            self.task = ViewTask(self.view, self.task.progress.without_place())
