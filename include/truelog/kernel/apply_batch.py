"""Applies a batch: merges a range of the log into one view.

1. select the records that the view has not merged yet, and remove copies
2. transform the records and total them by key, in native expressions on the executors
3. stage the totals from the executors
4. merge the staged totals

A record on which the transform fails must not stop the view forever. The merge excludes the record and stores the
reason, and every rebuild leaves the record out.
"""

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import psycopg

from truelog.control import log_cuts
from truelog.control.lease import Holder
from truelog.control.log_cuts import ReaderState
from truelog.kernel import bad_records, merge
from truelog.kernel.merge import Excluded, Merge
from truelog.log import records
from truelog.log.leader_epochs import Epochs
from truelog.log.positions import Positions
from truelog.log.records import EventFrames
from truelog.log.topic_health import TopicGuard
from truelog.storage.database import Connection
from truelog.support import faults
from truelog.support.errors import ServiceDown
from truelog.support.settings import Settings
from truelog.tables import kinds, stage
from truelog.tables.compiled_view import CompiledView
from truelog.tables.kinds import Batch


@dataclass(frozen=True)
class EventRange:
    """The valid events in [begin, end), as one frame per topic."""

    events: EventFrames
    begin: Positions
    end: Positions
    readings: Mapping[str, int] = field(default_factory=dict)  # by which the events were judged, 0 if absent
    epochs: Epochs | None = None  # the leader epochs before any record was read; None if Kafka did not answer


@dataclass(frozen=True)
class BatchApplier:
    """Applies batches to views under the lease of `holder`, if there is one. `guard` refuses re-created topics."""

    settings: Settings
    holder: Holder | None = None
    guard: TopicGuard | None = None

    def apply(self, connection: Connection, compiled: CompiledView, batch: EventRange, begin: Positions) -> Positions:
        """Advance a view from `begin`, its current positions, to the end of the batch, and return its new positions.

        `begin` is at or past the beginning of the batch.

        Raises: the errors of `merge.apply` and of the guard. The view's positions then stay unchanged.
        """
        topics = compiled.view.topics
        end = begin.latest(batch.end.only(topics))
        with stage.held(connection, compiled):
            self._stage_and_merge(connection, compiled, batch, begin, end)
        return end

    def _stage_and_merge(
        self, connection: Connection, compiled: CompiledView, batch: EventRange, begin: Positions, end: Positions
    ) -> None:
        started = time.monotonic()
        repairs = merge.repairs(connection, compiled) if compiled.view.is_stateful else None
        epochs = self._require_intact(connection, compiled, begin, batch)
        staged, excluded = self._stage(connection, compiled, batch, begin)
        prepare_seconds = time.monotonic() - started
        faults.reach("merge.staged")
        try:
            self.require_unchanged(end)
            if self.guard is not None:
                self.guard.require_same_leaders(epochs, end)
            merged = Merge(begin, end, staged, excluded, prepare_seconds, batch.readings, epochs, repairs)
            merge.apply(connection, compiled, merged, self.holder)  # 4
        except Exception:
            with suppress(psycopg.Error):  # retries of a failing merge must not fill the disk
                stage.clear(connection, compiled, staged)
            raise

    def take_epochs(self, positions: Positions) -> Epochs | None:
        """The leader epochs before a batch is read; None if Kafka does not answer."""
        try:
            return self.guard.take_epochs(positions) if self.guard is not None else None
        except ServiceDown:
            return None

    def _require_intact(
        self, connection: Connection, compiled: CompiledView, begin: Positions, batch: EventRange
    ) -> Epochs:
        """Require that the log still has all records that the view has read, and return the batch's leader epochs.

        Raises:
            LogCut: the log has lost some of these records.
        """
        if self.guard is None:
            return {}
        if batch.epochs is None:
            raise ServiceDown("Kafka did not answer about the leaders of the batch's partitions; see `truelog status`.")
        reader = ReaderState(compiled.name, begin, merge.leader_epochs(connection, compiled))
        log_cuts.require_intact(self.settings, connection, reader, batch.epochs)
        return batch.epochs

    def require_unchanged(self, read: Positions) -> None:
        """Require, after records up to `read` were read, that none of their topics was created again meanwhile."""
        if self.guard is not None:
            self.guard.require_unchanged(read)

    def _stage(
        self, connection: Connection, compiled: CompiledView, batch: EventRange, begin: Positions
    ) -> tuple[stage.StagedRows, Sequence[Excluded]]:
        """Stage the batch totals from `begin` on; return them and the records on which the transform fails."""
        partitions = {(each.topic, each.partition) for each in begin.ranges_to(batch.end.only(compiled.view.reads))}
        if not partitions:
            return stage.NO_ROWS, ()  # only ticks came, as happens every second on a quiet log: no work for Spark
        events = records.from_position(batch.events, begin, batch.begin)  # 1

        def attempt(excluded: Sequence[Excluded]) -> tuple[stage.StagedRows, Sequence[Excluded]]:
            counted = Batch(events, partitions, [each.coordinates for each in excluded])
            return kinds.stage_batch(connection, compiled, self.settings, counted), excluded  # 2, 3

        return bad_records.exclude_and_retry(compiled, lambda: events, attempt)
