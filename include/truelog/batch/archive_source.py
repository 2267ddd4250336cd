"""Archive source: the events and the partials from which a rebuild adds up tables.

Events come from the archive's typed columns, and closed log days from partials. From raw bytes, all records are parsed
again, and there are no partials.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial

from pyspark.sql import DataFrame

from truelog.archive import reader as archive_reader
from truelog.archive.reader import Wanted
from truelog.batch import partials
from truelog.batch.batch_context import BatchContext
from truelog.batch.partials import Partials
from truelog.batch.shared_events import SharedEvents
from truelog.kernel import clock
from truelog.log.positions import Positions, Range
from truelog.log.records import EventFrames
from truelog.schema.event import EventType
from truelog.tables.table import Table


@dataclass(frozen=True)
class ArchiveSource:
    """Reads from the archive. `shared` holds the raw bytes that were parsed already for other views.

    `known` has the few events that were read already: several tables may read one topic.
    """

    context: BatchContext
    from_raw: bool
    shared: SharedEvents | None
    known: dict[object, DataFrame] = field(default_factory=dict)

    def partials(self, table: Table, readings: Mapping[str, int]) -> Partials:
        """The partials of a table that were made under these readings of its topics."""
        return Partials(table) if self.from_raw else partials.load_partials(self.context.settings, table, readings)

    def events(self, topics: Iterable[str], wanted: Wanted) -> EventFrames:
        """The valid events of these topics in these ranges.

        Each topic is read by itself: Spark cannot see that decoded bytes of one topic have no events of another.
        """
        types = ((topic, self.context.event_types[topic]) for topic in topics)
        return {topic: self._events(event_type, wanted.of_topic(topic)) for topic, event_type in types}

    def _events(self, event_type: EventType, wanted: Wanted) -> DataFrame:
        if self.shared is not None and self.from_raw:
            return self.shared.events(event_type, wanted)
        read = partial(archive_reader.read_events, self.context.spark, self.context.settings, from_raw=self.from_raw)
        if not self.context.are_few:
            return read(event_type, wanted)
        asked = event_type.name, wanted.since, *wanted.ranges
        if asked not in self.known:
            self.known[asked] = read(event_type, replace(wanted, are_few=True))
        return self.known[asked]

    def ticks(self, positions: Positions) -> clock.ReadTicks:
        """The function that reads ticks of the topic in these positions."""

        def read(begin: int, end: int, since: datetime | None) -> DataFrame:
            wanted = Wanted([Range(clock.TOPIC, 0, begin, end)], positions.ids, since)
            return self.events([clock.TOPIC], wanted)[clock.TOPIC]

        return read
