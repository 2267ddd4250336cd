"""A task of the pool, which advances one view until it has reached the end of the newest batch.

The task's thread alone replaces its progress, which is immutable, and the application may read it. When the task is
over, its progress no longer changes, and the next task begins with it.
"""

import logging
import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import psycopg

from truelog.control import view_status
from truelog.kernel import merge
from truelog.kernel.apply_batch import BatchApplier, EventRange
from truelog.log.positions import Positions
from truelog.log.records import RECORDS_PER_TASK
from truelog.storage.database import Connection, connect
from truelog.streaming.portions import Portions
from truelog.support.errors import Fenced
from truelog.support.settings import Settings
from truelog.tables.compiled_view import CompiledView
from truelog.tables.staging.repeated_plans import RepeatedPlans

_LONGEST_PAUSE = 60.0  # seconds
_PORTION_SHARE = 1 / 3  # of `hang_seconds`: how long a step should take at most
_TELLING_RECORDS = 5_000  # a step with fewer says little about how many a view can apply in a second

log = logging.getLogger("truelog.stream")


@dataclass
class StreamedView:
    """A view, what advances it, and its stored state: all that its tasks and the application share."""

    portions: Portions
    applier: BatchApplier
    compiled: CompiledView
    repeated: RepeatedPlans | None = None
    stopping: threading.Event = field(default_factory=threading.Event)  # no further step begins
    _stored: str = ""  # the last stored reason why the view is stalled
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)  # held to store a reason

    def store_state(self, reason: str, is_valid: Callable[[], bool] = lambda: True) -> None:
        """If the reason has changed, store why the view is stalled, or that it is not, on a separate connection.

        `is_valid` is asked after another thread's reason was stored. A view that is stopping reports nothing: it may
        have a new worker already, or none.
        """
        holder, name, version = self.applier.holder, self.compiled.name, self.compiled.view.version
        with self._lock:
            if holder is None or reason == self._stored or self.stopping.is_set() or not is_valid():
                return
            try:
                with connect(self.applier.settings) as connection:
                    view_status.report(connection, holder.application, name, version, reason)
                self._stored = reason
            except psycopg.Error as error:
                log.warning("%s: the state could not be stored; the next attempt will store it: %s", name, error)


@dataclass(frozen=True)
class Progress:
    """How far a view is. `positions` is None if they must be read from the database."""

    connection: Connection | None = None
    positions: Positions | None = None
    step_seconds: float = math.inf  # duration of the last step
    pace: float = math.inf  # records per second of the last step that had many; infinite before the first one
    step_began: datetime | None = None  # when the current step began; None between steps
    failures: int = 0  # consecutive failures
    paused_until: float = 0.0  # by the monotonic clock

    def step_lasts(self) -> float:
        """How long the current step has run, in seconds."""
        return (datetime.now(UTC) - self.step_began).total_seconds() if self.step_began else 0.0

    def without_place(self) -> "Progress":
        """What stays known when only the database has the positions: how fast the view is."""
        return Progress(step_seconds=self.step_seconds, pace=self.pace)

    def after_step(self, connection: Connection, reached: Positions) -> "Progress":
        """The progress once the current step has brought the view from its positions to `reached`."""
        seconds, records = self.step_lasts(), self.positions.records_to(reached) if self.positions else 0
        pace = records / max(seconds, 0.001) if records >= _TELLING_RECORDS else self.pace
        return Progress(connection, reached, seconds, pace)

    def most_records(self, settings: Settings) -> float:
        """How many records the next step should have at most, so that it takes a third of what counts as a hang.

        So a slow view that is far behind often commits what it has done. Without this limit, a step could take
        minutes: readers would see no progress, the view would be reported as stalled, and a crash would lose all of
        it. A small batch is always allowed, because the view has its plans already. The limit is infinite for a view
        that never had many records.
        """
        return max(self.pace * settings.hang_seconds * _PORTION_SHARE, RECORDS_PER_TASK)

    def portion_to(self, positions: Positions, end: Positions, settings: Settings) -> Positions:
        """Where the next portion of a view at `positions` ends on its way to `end`."""
        return positions.portion_to(end, int(min(self.most_records(settings), settings.max_offsets_per_trigger)))

    def is_nearly_at(self, end: Positions, settings: Settings) -> bool:
        """Whether one more portion brings the view to the end, and no step takes longer than a batch waits.

        No batch waits for a view with slow steps, because that view would delay the others in each batch.
        """
        if self.positions is None or max(self.step_seconds, self.step_lasts()) > settings.batch_grace_seconds:
            return False
        return self.portion_to(self.positions, end, settings).covers(end)


class ViewTask:
    """Advances a view to a target. The application may move the target and forget former failures meanwhile.

    Without a target, the task is over from the start.
    """

    def __init__(self, view: StreamedView, progress: Progress, target: Positions | None = None) -> None:
        self.progress, self.is_over = progress, target is None
        self.failures = progress.failures  # before this task
        self._view, self._target = view, target or Positions()
        self._lock = threading.Lock()  # held to move the target and to find it reached, so no target is overlooked

    def advance(self, target: Positions) -> bool:
        """Move the target. Return False if the task is over, and thus begins no further step."""
        with self._lock:
            if not self.is_over:
                self._target = target
            return not self.is_over

    def run(self, batch: EventRange) -> None:
        """Apply the batch and all later records to the view. If that fails, store the reason and pause the view.

        Raises:
            Fenced: a successor is running, so this process must exit.
        """
        try:
            connection, positions = self._open()
            self.progress = Progress(connection, positions, self.progress.step_seconds, self.progress.pace)
            while not self._is_done(positions):
                self.progress = replace(self.progress, step_began=datetime.now(UTC))
                positions = self._step(connection, positions, batch)
                self.progress = self.progress.after_step(connection, positions)
        except Fenced:
            raise
        except Exception as error:
            self._fail(error)

    def _open(self) -> tuple[Connection, Positions]:
        """The connection and the positions, which the process does not have at first and after a failure."""
        connection, positions, applier = self.progress.connection, self.progress.positions, self._view.applier
        if connection is None or positions is None:
            writer = applier.holder.application if applier.holder else None
            connection = connect(applier.settings, autocommit=True, writer=writer)
            self.progress = replace(self.progress, connection=connection)
            positions = merge.positions(connection, self._view.compiled)
        return connection, positions

    def _is_done(self, positions: Positions) -> bool:
        """Whether the view has reached the target. Then it is reported as up to date, and the task is over."""
        positions.require_same_topics(self._target)
        if self._is_behind(positions):
            return False
        self._view.store_state("")  # before another task may begin, whose state this one would replace
        with self._lock:
            self.is_over = not self._is_behind(positions)
            return self.is_over

    def _is_behind(self, positions: Positions) -> bool:
        return not self._view.stopping.is_set() and not positions.covers(self._target)

    def _step(self, connection: Connection, positions: Positions, batch: EventRange) -> Positions:
        view, names = self._view, self._view.compiled.view.topics
        lacking, settings = positions.records_to(batch.end.only(names)), view.applier.settings
        most = math.inf if batch.files is not None else self.progress.most_records(settings)
        if positions.covers(batch.begin.only(names)) and 0 < lacking <= most:
            return view.applier.apply(connection, view.compiled, batch, positions, view.repeated)
        span = positions, self.progress.portion_to(positions, self._target, settings)
        again = self.failures > 0
        with view.portions.next(connection, view.compiled, span, again=again) as portion:
            return view.applier.apply(connection, view.compiled, portion, positions, view.repeated)

    def _fail(self, error: Exception) -> None:
        """Discard the progress: only the database has the positions, and the connection may be broken."""
        view, failed, pause = self._view, self.progress, min(_LONGEST_PAUSE, 0.25 * 2 ** (self.failures + 1))
        self.progress = failed.without_place()
        log.exception("%s is stalled; next attempt with the first batch after %.1f s", view.compiled.name, pause)
        view.store_state(f"{type(error).__name__}: {error}")
        if failed.connection is not None:
            failed.connection.close()
        self.progress = replace(self.progress, failures=self.failures + 1, paused_until=time.monotonic() + pause)
        self.is_over = True
