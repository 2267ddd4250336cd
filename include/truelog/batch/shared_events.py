"""Events that are decoded from raw bytes once for all views of a batch job.

A rebuild from raw bytes spends most of its time decoding. The first view that needs a topic decodes the topic's records
up to the furthest position of all views. Spark keeps the events in memory, and on disk if there are too many. Each view
takes its own ranges from these events, and reads from the archive what lies past them, so its positions stay exact.
"""

import logging
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import reduce

from pyspark.sql import DataFrame, SparkSession

from truelog.archive.reader import Wanted, read_events
from truelog.archive.table import archived_positions
from truelog.erasure import ledger
from truelog.log.positions import Positions, Range
from truelog.log.records import in_ranges
from truelog.schema.event import EventType
from truelog.storage.database import connect
from truelog.support.errors import TruelogError
from truelog.support.settings import Settings

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Held:
    """The decoded events of one topic below `end`. `shown` are the erasures that the archive showed before."""

    frame: DataFrame
    end: Positions
    shown: frozenset[str]

    def inside(self, wanted: Wanted) -> DataFrame:
        """The events in those parts of the wanted ranges that are held."""
        clipped = (replace(r, end=min(r.end, self.end.at(r.topic, r.partition))) for r in wanted.ranges)
        return self.frame.where(in_ranges(clipped))

    def past(self, wanted: Wanted) -> list[Range]:
        """Those parts of the wanted ranges that are not held."""
        cut = (replace(r, start=max(r.start, self.end.at(r.topic, r.partition))) for r in wanted.ranges)
        return [each for each in cut if each.start < each.end]


@dataclass
class SharedEvents:
    """Decoded events, by topic. `furthest` is where the furthest view is. Several threads may call the methods."""

    spark: SparkSession
    settings: Settings
    furthest: Positions
    _held: dict[str, _Held | None] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def events(self, event_type: EventType, wanted: Wanted) -> DataFrame:
        """The valid events among the wanted records, which are records of the type's topic.

        After an erasure, the events are read again. The caller holds the lock of the view's comparisons, for which a
        later erasure of the view waits.

        Raises: the errors of `archive.reader.read_records`.
        """
        held = None if wanted.since else self._of_topic(event_type)
        if held is None or not self._may_use(held, wanted, event_type.name):
            return read_events(self.spark, self.settings, event_type, wanted, from_raw=True)
        inside, past = held.inside(wanted), held.past(wanted)
        if not past:
            return inside
        further = read_events(self.spark, self.settings, event_type, replace(wanted, ranges=past), from_raw=True)
        return inside.unionByName(further)

    def _may_use(self, held: _Held, wanted: Wanted, topic: str) -> bool:
        is_same = wanted.ids.get(topic) == held.end.ids.get(topic)
        return is_same and held.shown == self._shown()

    def _shown(self) -> frozenset[str] | None:
        with connect(self.settings) as connection:
            return ledger.shown(connection)

    def _of_topic(self, event_type: EventType) -> _Held | None:
        """The topic's decoded events; None if each view has to read the topic itself."""
        with self._lock:
            if event_type.name not in self._held:
                self._held[event_type.name] = self._decode(event_type)
            return self._held[event_type.name]

    def _decode(self, event_type: EventType) -> _Held | None:
        topic, shown = [event_type.name], self._shown()
        if shown is None:
            log.warning("each view decodes %s by itself, because an erasure is being written", event_type.name)
            return None
        try:
            end = self.furthest.only(topic).earliest(archived_positions(self.settings, topic))
            wanted = Wanted.between(Positions(), end)
            events = read_events(self.spark, self.settings, event_type, wanted, from_raw=True)
        except TruelogError as refused:  # a view that is not so far may still read its records
            log.warning("each view decodes %s by itself: %s", event_type.name, refused)
            return None
        return _Held(events.persist(), end, shown)

    def release(self) -> None:
        for held in self._held.values():
            if held is not None:
                held.frame.unpersist()


@contextmanager
def shared_events(spark: SparkSession, settings: Settings, positions: Iterable[Positions]) -> Iterator[SharedEvents]:
    """Share the events below the furthest of these positions, as far as they are archived, until the block ends."""
    shared = SharedEvents(spark, settings, reduce(Positions.latest, positions, Positions()))
    try:
        yield shared
    finally:
        shared.release()
