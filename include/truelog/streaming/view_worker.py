"""Follower: one view within a stream application, on a connection and a thread of its own.

A view that fails or is slow stands where it stands and holds nobody up. Batches that end while it is busy only tell it
how far the log has come; when it is done it finds itself behind, and reads what it lacks, portion by portion: from the
log, or where the log has dropped it, from the archive. One that fails again and again is tried less and less often.

Each portion costs a look at the log, and while it is read further batches end: a view could read behind them for ever,
however fast it is. So the batch waits for one that is near (`near`), which then stands where the next batch begins, and
takes part in it.
"""

import logging
import math
import threading
import time
from concurrent.futures import Future
from dataclasses import dataclass, field

import psycopg
from pyspark.sql import SparkSession

from truelog.batch import log_with_archive
from truelog.control import view_status
from truelog.kernel import clock, merge
from truelog.kernel.apply_batch import BatchApplier, EventRange
from truelog.log.positions import Positions
from truelog.log.records import EventTypes
from truelog.storage.database import Connection, connect
from truelog.support.errors import Fenced
from truelog.support.settings import Settings
from truelog.views.compiled_view import Compiled

_REASON = 500  # characters of it that are kept
_LONGEST_REST = 60.0  # seconds

log = logging.getLogger("truelog.stream")


@dataclass
class ViewWorker:
    """What a stream knows of one of its views; `stands` is None when it must be asked from the database."""

    spark: SparkSession
    applier: BatchApplier
    event_types: EventTypes
    compiled: Compiled
    connection: Connection | None = None
    stands: Positions | None = None
    wanted: Positions = field(default_factory=Positions)  # how far the log has come
    busy: bool = False
    task: "Future[None] | None" = None  # what it was given last
    told: str = ""  # why the view stands still, as readers were told last
    took: float = math.inf  # seconds, its last step
    failures: int = 0  # in a row
    rests_until: float = 0.0
    ending: threading.Event = field(default_factory=threading.Event)  # the application is about to end
    _change: threading.Lock = field(default_factory=threading.Lock, repr=False)  # of `wanted` and `busy` together

    def offer(self, piece: EventRange) -> bool:
        """Tell how far the log has come; True where the view is free, and the caller is to have it `follow`."""
        with self._change:
            self.wanted = piece.end.only(self.compiled.view.topics)
            free = not self.busy and time.monotonic() >= self.rests_until
            self.busy = self.busy or free
        return free

    def near(self, piece: EventRange) -> bool:
        """Whether the view, busy as it is, will soon be free if no further batch begins."""
        stands = self.stands
        if not self.busy or stands is None:
            return False
        return is_caught_up(self.applier.settings, stands, piece.end.only(self.compiled.view.topics), self.took)

    def follow(self, piece: EventRange) -> None:
        """Take the view through the slice and to wherever the log has come since, or leave it and say why.

        Raises:
            Fenced: this process must end; a successor runs.
        """
        try:
            while self._behind():
                began = time.monotonic()
                self._step(piece)
                self.took = time.monotonic() - began
            self.failures = 0
            self._tell("")
        except Fenced:
            raise
        except Exception as error:
            self.failures += 1
            rest = min(_LONGEST_REST, 0.25 * 2**self.failures)
            log.exception("%s stands still; a batch after %.1f s tries again", self.compiled.name, rest)
            self._forget(rest)
            self._tell(f"{type(error).__name__}: {error}"[:_REASON])

    def positions(self) -> Positions:
        """Where the view stands, by the database where this process does not know."""
        if self.connection is None:
            holder = self.applier.holder
            writer = holder.application if holder else None
            self.connection = connect(self.applier.settings, autocommit=True, writer=writer)
        if self.stands is None:
            self.stands = merge.positions(self.connection, self.compiled)
        return self.stands

    def _behind(self) -> bool:
        stands = self.positions()
        stands.require_same_topics(self.wanted)
        with self._change:
            self.busy = not self.ending.is_set() and not stands.covers(self.wanted)
            return self.busy

    def _step(self, piece: EventRange) -> None:
        names, stands = self.compiled.view.topics, self.positions()
        at_hand = stands.covers(piece.begin.only(names)) and not stands.covers(piece.end.only(names))
        here = piece if at_hand else self._missed(stands, self.wanted)
        assert self.connection is not None  # noqa: S101
        self.stands = self.applier.apply(self.connection, self.compiled, here, stands)

    def _missed(self, stands: Positions, end: Positions) -> EventRange:
        """A portion of what lies between the view and the batch."""
        settings = self.applier.settings
        until = stands.portion_to(end, settings.max_offsets_per_trigger)
        log.info("%s catches up from %s to %s", self.compiled.name, stands.as_json(), until.as_json())
        events = log_with_archive.read_events(self.spark, settings, self.event_types, stands, until)
        if self.compiled.view.keep:
            assert self.connection is not None  # noqa: S101
            clock.store_ticks(self.connection, until.ids[clock.TOPIC], events[clock.TOPIC])
        return EventRange(events, stands, until)

    def _tell(self, why_standing: str) -> None:
        """Have it seen whether the view stands still, on a connection of its own, where that changed."""
        holder = self.applier.holder
        if holder is None or why_standing == self.told:
            return
        try:
            with connect(self.applier.settings) as connection:
                version = self.compiled.view.version
                view_status.record_state(connection, holder.application, self.compiled.name, version, why_standing)
            self.told = why_standing
        except psycopg.OperationalError:
            log.warning("%s: nobody could be told how it stands; it is tried again", self.compiled.name)

    def _forget(self, rest: float) -> None:
        """After a failure only the database knows where the view stands, and the connection may be broken."""
        if self.connection is not None:
            self.connection.close()
        self.connection = self.stands = None
        with self._change:
            self.busy, self.rests_until = False, time.monotonic() + rest


def is_caught_up(settings: Settings, stands: Positions, end: Positions, took: float) -> bool:
    """Whether one portion more takes a view to the end, and its last step took no longer than a batch waits.

    A view that is slow by itself is not near, or it would hold up the others batch after batch.
    """
    return took <= settings.batch_grace_seconds and stands.portion_to(end, settings.max_offsets_per_trigger).covers(end)
