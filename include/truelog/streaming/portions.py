"""What a late view reads next: the portion of the log between its positions and the end of the newest batch.

A portion comes from the application's recent batches, if these reach back far enough and the view's last step did not
fail. Otherwise it is read from the log, or from the archive what the log has dropped. A small portion consists of files
for which the view has its plans already, so a late view costs no more than a view that takes part in the batches.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial

from pyspark.sql import SparkSession

from truelog.batch import log_with_archive
from truelog.erasure import ledger
from truelog.kernel import clock
from truelog.kernel.apply_batch import EventRange
from truelog.kernel.log_guard import LogGuard
from truelog.log import records
from truelog.log.leader_epochs import Epochs
from truelog.log.positions import Positions
from truelog.log.records import Columns, EventFrames
from truelog.log.tick_reader import read_ticks
from truelog.log.topics import PartitionKey
from truelog.schema.event import EventTypes
from truelog.schema.event_version import readings_of
from truelog.storage.database import Connection
from truelog.streaming.batch_files import BatchFiles
from truelog.streaming.recent_batches import RecentBatches
from truelog.support.settings import Settings
from truelog.tables.compiled_view import CompiledView
from truelog.tables.staging import event_files

log = logging.getLogger("truelog.stream")


class Portions:
    """The portions of the late views of one application."""

    def __init__(self, settings: Settings, spark: SparkSession, guard: LogGuard, files: BatchFiles) -> None:
        self.settings, self.spark, self.guard, self.files = settings, spark, guard, files
        self.recent = RecentBatches()
        self._declared: tuple[EventTypes, Columns] = ({}, {})

    def declare(self, types: EventTypes, needed: Columns) -> None:
        """From now on, use these event types and read these columns, which the application's views need."""
        self._declared = types, needed
        self.recent.forget()

    @contextmanager
    def next(
        self, connection: Connection, view: CompiledView, span: tuple[Positions, Positions], *, again: bool
    ) -> Iterator[EventRange]:
        """The records of a span, for a view at its beginning. A portion of recent batches may end past the span.

        If `again`, it is read from the log, although recent batches may have its records.
        """
        with ExitStack() as kept:
            portion = None if again else self._of_recent_batches(kept, view, span[0])
            if portion is None:
                portion = self._of_log(kept, connection, view, span)
                log.info("%s catches up from %s to %s", view.name, span[0].as_json(), portion.end.as_json())
            yield portion

    def _of_recent_batches(self, kept: ExitStack, view: CompiledView, begin: Positions) -> EventRange | None:
        """The recent batches that the view lacks, as one. Their ticks are stored already."""
        with self.recent.after(begin, view.view.topics) as batches:
            epochs = _earliest(each.epochs for each in batches)
            if not batches or epochs is None:
                return None
            first, end = batches[0], batches[-1].end.only(view.view.topics)
            if begin.covers(end):  # only other topics have moved, so the view would remain where it is
                return None
            parts = [each.files for each in batches if each.files is not None]
            if not parts:
                return EventRange({}, begin, end, first.readings, epochs)
            joined = event_files.join(self.files.new_folder(kept), parts, view.view.reads)
        # If a leader has changed since these epochs were taken, the merge fails, and the next portion is read again.
        return EventRange(self.files.frames(joined), begin, end, first.readings, epochs, files=joined)

    def _of_log(
        self, kept: ExitStack, connection: Connection, view: CompiledView, span: tuple[Positions, Positions]
    ) -> EventRange:
        """Records of the log, which are read once however often the portion is used."""
        begin, end = span
        declared, needed = self._declared
        epochs = self.guard.take_epochs(end)
        types = {topic: declared[topic] for topic in end.offsets}
        erased = ledger.rewritten(connection)  # before the records are read
        portion = EventRange({}, begin, end, readings_of(declared.values()), epochs, erased)
        ranges = begin.ranges_to(end.only(view.view.reads))
        is_small = self.files.are_for(ranges) and not log_with_archive.archived_only(self.settings, types, span)
        read = {topic: types[topic] for topic in view.view.reads}
        files = self.files.write(kept, read, ranges, needed) if is_small and ranges else None
        if not is_small or (ranges and files is None):
            return replace(portion, events=self._decoded(kept, connection, view, types, span))
        if view.view.reads_clock:
            ticks = read_ticks(self.settings, types[clock.TOPIC], begin.ranges_to(end.only([clock.TOPIC])))
            clock.store_tick_rows(connection, end.ids[clock.TOPIC], ticks, self._same_ticks(end))
        return portion if files is None else replace(portion, events=self.files.frames(files), files=files)

    def _decoded(
        self,
        kept: ExitStack,
        connection: Connection,
        view: CompiledView,
        types: EventTypes,
        span: tuple[Positions, Positions],
    ) -> EventFrames:
        """The events of a portion that is large or comes from the archive, decoded by Spark's tasks."""
        decoded = log_with_archive.read_records(self.spark, self.settings, types, span, view.columns)
        if records_are_reread([view]) or view.view.reads_clock:  # storing the ticks is a read too
            kept.callback(decoded.persist().unpersist)
        events = records.events(decoded, types)
        if view.view.reads_clock:
            end = span[1]
            clock.store_ticks(connection, end.ids[clock.TOPIC], events[clock.TOPIC], self._same_ticks(end))
        return events

    def _same_ticks(self, end: Positions) -> Callable[[], None]:
        return partial(self.guard.require_unchanged, end.only([clock.TOPIC]))


def records_are_reread(views: Sequence[CompiledView]) -> bool:
    """Whether a batch for these views is read more than once, so that Spark should keep its decoded records.

    A batch that is read once costs less if it is not kept.
    """
    return sum(each.scans for each in views) > 1


def _earliest(found: Iterable[Epochs | None]) -> Epochs | None:
    """The first known epoch of each partition; None if Kafka did not answer about those of a batch."""
    earliest: dict[PartitionKey, int] = {}
    for each in found:
        if each is None:
            return None
        earliest = {**each, **earliest}
    return earliest
