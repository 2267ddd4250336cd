"""Applies a batch: merges a range of the log into one view.

1. require that the log still has all records that the view has counted
2. select the records that the view has not merged yet, remove copies, transform the records and total them by key, in
   native expressions on the executors, which also stage the totals
3. require that the log was not replaced while it was read
4. merge the staged totals

A record on which the transform fails must not stop the view forever. The merge excludes the record and stores the
reason, and every rebuild leaves the record out.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from truelog.control.lease import Holder
from truelog.kernel import bad_records, clock, merge
from truelog.kernel.exclusions import Excluded
from truelog.kernel.log_guard import LogGuard
from truelog.kernel.merge import Merge
from truelog.log import records
from truelog.log.leader_epochs import Epochs
from truelog.log.positions import Positions
from truelog.log.records import EventFrames
from truelog.storage.database import Connection
from truelog.support import faults
from truelog.support.settings import Settings
from truelog.tables import kinds, stage
from truelog.tables.compiled_view import CompiledView
from truelog.tables.kinds import Batch
from truelog.tables.stage import StagedRows
from truelog.tables.staging.batch_plans import BatchPlans
from truelog.tables.staging.event_files import EventFiles
from truelog.tables.staging.repeated_plans import RepeatedPlans


@dataclass(frozen=True)
class EventRange:
    """The valid events in [begin, end), as one frame per topic."""

    events: EventFrames
    begin: Positions
    end: Positions
    readings: Mapping[str, int] = field(default_factory=dict)  # by which the events were judged, 0 if absent
    epochs: Epochs | None = None  # the leader epochs before any record was read; None if Kafka did not answer
    erasures: frozenset[str] = frozenset()  # that the source showed when the records were read
    files: EventFiles | None = None  # of a small batch: the files that its frames read
    is_proved: bool = False  # whether its topics and their leaders were found to be the same after it was read


@dataclass(frozen=True)
class BatchApplier:
    """Applies batches to views under the lease of `holder`, if there is one."""

    settings: Settings
    holder: Holder | None = None
    guard: LogGuard = field(default_factory=LogGuard)

    def apply(
        self,
        connection: Connection,
        compiled: CompiledView,
        batch: EventRange,
        begin: Positions,
        repeated: RepeatedPlans | None = None,
    ) -> Positions:
        """Advance a view from `begin`, its current positions, to the end of the batch, and return its new positions.

        `begin` is at or past the beginning of the batch. `repeated` are the view's plans for small batches.

        Raises: the errors of `merge.apply` and of the guard. The view's positions then stay unchanged.
        """
        end = begin.latest(batch.end.only(compiled.view.topics))
        with stage.held(connection, compiled), stage.cleared_after_failure(connection, compiled):
            started = time.monotonic()
            repairs = merge.repairs(connection, compiled) if compiled.view.is_stateful else None
            epochs = self.guard.before(connection, compiled, begin, batch.epochs)  # 1
            staged, excluded = self._stage(connection, compiled, batch, begin, repeated)  # 2
            prepare_seconds = time.monotonic() - started
            faults.reach("merge.staged")
            if not batch.is_proved:
                self.guard.after(epochs, end)  # 3
            merged = Merge(
                begin, end, staged, excluded, prepare_seconds, batch.readings, epochs, repairs, batch.erasures
            )
            merge.apply(connection, compiled, merged, self.holder)  # 4
            if excluded:  # the attempts before the records were excluded have reported nothing
                stage.clear_own(connection, compiled)
        return end

    def _stage(
        self,
        connection: Connection,
        compiled: CompiledView,
        batch: EventRange,
        begin: Positions,
        repeated: RepeatedPlans | None,
    ) -> tuple[StagedRows, Sequence[Excluded]]:
        """Stage the batch totals from `begin` on; return them and the records on which the transform fails."""
        partitions = {(each.topic, each.partition) for each in begin.ranges_to(batch.end.only(compiled.view.reads))}
        if not partitions:
            return stage.NO_ROWS, ()  # only ticks came, as happens every second on a quiet log: no work for Spark
        events = records.from_position(batch.events, begin, batch.begin)
        unexpired = kinds.without_expired(compiled, clock.cutoff(connection, compiled.own, begin))
        if repeated and batch.files and events is batch.events:
            plans: BatchPlans = repeated
            events = repeated.events_of(batch.files, compiled.view.reads)
        else:
            plans = BatchPlans(events[compiled.view.reads[0]].sparkSession, self.settings)

        def attempt(excluded: Sequence[Excluded]) -> tuple[StagedRows, Sequence[Excluded]]:
            counted = Batch(events, partitions, [each.coordinates for each in excluded])
            # The search for bad records has kept the events in memory, so repeated plans could not read other files.
            chosen = BatchPlans(plans.spark, self.settings) if excluded else plans
            return kinds.stage_batch(connection, unexpired, chosen, counted), excluded

        try:
            return bad_records.exclude_and_retry(compiled, lambda: events, attempt)
        finally:
            if repeated:
                repeated.forget_rows()
