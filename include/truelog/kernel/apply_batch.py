"""Advance: one view takes a range of the log.

1. what the view still lacks of the records
2. transform, and add up by key: native expressions, on the executors
3. stage, from the executors
4. merge

A record on which the transform fails must not stop the view for ever: it is found, set aside with its reason in the
same merge, and left out by every rebuild alike.
"""

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import psycopg

from truelog.control.lease import Holder
from truelog.kernel import bad_records, merge, stage
from truelog.kernel.merge import Excluded, Merge
from truelog.log import records
from truelog.log.positions import Positions
from truelog.log.records import EventFrames
from truelog.storage.database import Connection
from truelog.support import faults
from truelog.support.settings import Settings
from truelog.views.compiled_view import Compiled


@dataclass(frozen=True)
class EventRange:
    """The good events in [begin, end), a frame for each topic."""

    events: EventFrames
    begin: Positions
    end: Positions


@dataclass(frozen=True)
class BatchApplier:
    """Takes views over ranges of the log; holds what all of them need."""

    settings: Settings
    holder: Holder | None = None

    def apply(self, connection: Connection, compiled: Compiled, piece: EventRange, stands: Positions) -> Positions:
        """Bring a view that stands at `stands`, at or past the slice's begin, to the slice's end.

        Raises: what `merge.apply` raises; the view then stands where it stood.
        """
        topics = compiled.view.topics
        end = stands.latest(piece.end.only(topics))
        began = time.monotonic()
        staged, excluded = self._added(compiled, piece, stands)
        prepared = time.monotonic() - began
        faults.reach("merge.staged")
        try:
            merge.apply(connection, compiled, Merge(stands, end, staged, excluded, prepared), self.holder)  # 4
        except Exception:
            with suppress(psycopg.Error):  # a merge that is tried for ever must not fill the disk
                stage.clear(connection, compiled, staged)
            raise
        return end

    def _added(
        self, compiled: Compiled, piece: EventRange, stands: Positions
    ) -> tuple[stage.StagedRows, Sequence[Excluded]]:
        """What the view still lacks of the slice, staged; and the records that its transform cannot take."""
        if not stands.ranges_to(piece.end.only(compiled.view.reads)):
            return stage.NO_ROWS, ()  # only ticks came, as once a second on a quiet log: no work for Spark
        lacking = records.from_position(piece.events, stands, piece.begin)  # 1

        def attempt(excluded: Sequence[Excluded]) -> tuple[stage.StagedRows, Sequence[Excluded]]:
            counted = records.without_records(lacking, [each.coordinates for each in excluded])
            return self.stage_totals(compiled, counted), excluded

        return bad_records.exclude_and_retry(compiled, lambda: lacking, attempt)

    def stage_totals(self, compiled: Compiled, events: EventFrames) -> stage.StagedRows:
        """What the events add to the view, waiting in the staging table."""
        return stage.load(compiled.totals_of(events), compiled, self.settings)  # 2, 3
