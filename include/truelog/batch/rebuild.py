"""Rebuilds a view at exact positions from the archive, with the same code as the stream.

Closed log days come from the view's partials, and all other records come from the archive, by offset. If `from_raw` is
true, everything comes from the raw bytes. A rebuild is one large micro-batch into an empty table.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TypeVar

from psycopg import sql
from pyspark.sql import DataFrame

from truelog.archive import reader as archive_reader
from truelog.batch import log_with_archive, partials
from truelog.batch.batch_context import BatchContext
from truelog.batch.lookback import find_lookback
from truelog.batch.partial_selection import PartialSelection, select_partials
from truelog.batch.partials import Partials
from truelog.batch.shared_events import SharedEvents
from truelog.kernel import bad_records, clock, merge
from truelog.kernel.merge import Excluded
from truelog.log.positions import Positions, Range
from truelog.log.records import Coordinates, EventFrames
from truelog.schema import event_version
from truelog.schema.event import EventType, EventTypes
from truelog.schema.event_version import UsedVersions
from truelog.storage.database import Connection
from truelog.tables import deploy as table
from truelog.tables import kinds, stage
from truelog.tables.compiled_view import CompiledView, RowFilter, all_rows
from truelog.tables.contributions import transformed_by_record
from truelog.tables.stage import StagedRows

_T = TypeVar("_T")


@dataclass(frozen=True)
class Rebuilder:
    """Rebuilds one view. If `from_raw` is true, it parses the archive's raw bytes again and ignores partials.

    `shared` holds the raw bytes that were parsed already for other views. `of_table` makes the rebuilder of one of the
    view's tables: it computes that table's rows, but the positions and the skipped records are the view's.
    """

    context: BatchContext
    connection: Connection
    compiled: CompiledView
    from_raw: bool = False
    shared: SharedEvents | None = None

    def of_table(self, compiled: CompiledView) -> "Rebuilder":
        """The rebuilder of one of the view's tables alone."""
        if compiled is self.compiled and not compiled.sides:
            return self  # its columns are cached
        return replace(self, compiled=replace(compiled, sides=()))

    def rebuild(self, positions: Positions, only: RowFilter = all_rows) -> None:
        """Create `recon.<table>` as the table at `positions`, limited to the rows that `only` selects.

        Raises:
            ArchiveBehind: the archive has not reached the positions.
        """
        staged = self.stage_rows(positions, only)
        with self.connection.transaction():
            self.create_tables("recon", staged)
            merge.drop_expired(self.connection, self.compiled, "recon", positions)

    def create_tables(self, schema: str, staged: StagedRows) -> None:
        """Create each of the view's tables in `schema`, with the staged rows, within the caller's transaction."""
        for each in self.compiled.tables:
            self.connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(sql.Identifier(schema, each.table)))
            table.create_table(self.connection, each, schema, each.table)
        self.merge_staged(schema, staged)

    def stage_rows(self, positions: Positions, only: RowFilter = all_rows) -> StagedRows:
        """Load the view at `positions`, limited to the rows that `only` selects, into the staging tables."""
        return self._stage(lambda table: self.of_table(table).states(positions, only))

    def _stage(self, states: Callable[[CompiledView], DataFrame]) -> StagedRows:
        stage.hold(self.connection, self.compiled)  # until the caller closes the connection
        return stage.stage_tables(self.compiled, states, self.context.settings)

    def states(self, positions: Positions, only: RowFilter = all_rows) -> DataFrame:
        """The table at `positions` as states, one row for each key, including rows that `keep` will drop.

        Also stores the ticks that the view's clock needs at these positions.
        """
        return kinds.states(self.compiled, _At(self, positions), only)

    def summed(self, positions: Positions, only: RowFilter) -> DataFrame:
        """The states of a table to which events are added, from partials and records."""
        stored, selected = self.selection(positions)
        events = self.countable(selected.records, positions)
        self.store_ticks(positions)
        states = self.compiled.totals_of(events, only)
        partial_states = stored.read(self.context.spark, selected.partials)
        if partial_states is None:
            return states
        return self.compiled.plus(only(partial_states).unionByName(states))

    def selection(self, positions: Positions) -> tuple[Partials, PartialSelection]:
        """The partials and the records from which `states` rebuilds a table of events."""
        stored = (
            Partials(self.compiled)
            if self.from_raw
            else partials.load_partials(self.context.settings, self.compiled, self.readings)
        )
        return stored, select_partials(stored.ranges, positions.only(self.compiled.view.topics))

    def store_ticks(self, positions: Positions) -> None:
        """Store the ticks that the view's clock needs at `positions`."""
        if self.compiled.view.reads_clock and clock.TOPIC in positions.ids:
            clock.store_deciding_ticks(
                self.connection, positions.ids[clock.TOPIC], self.ticks(positions), positions, self.compiled.view.reads
            )

    def states_between(self, begin: Positions, end: Positions) -> DataFrame:
        """The states of the archive's records from `begin` to `end`."""
        return self.compiled.totals_of(self.countable_events(begin, end))

    def countable_events(self, begin: Positions, end: Positions) -> EventFrames:
        """The valid events of the view's topics from `begin` to `end`, without the excluded records."""
        return self.countable(begin.ranges_to(end), end)

    def countable(self, ranges: Collection[Range], positions: Positions) -> EventFrames:
        """The events in these ranges, which are below `positions`, that the table counts."""
        wanted = archive_reader.Wanted([*ranges, *self._lookback(ranges, positions)], positions.ids)
        return kinds.countable(self.compiled, self.events(wanted), self.excluded(positions), ranges)

    def transformed_by_record(self, wanted: archive_reader.Wanted, positions: Positions) -> DataFrame:
        """The transform's rows for these records below `positions` that count, each with its record."""
        return transformed_by_record(self.compiled, self.countable(wanted.ranges, positions))

    def remembered(self, positions: Positions) -> EventFrames:
        """The events that the table `seen` has at `positions`."""
        wanted = archive_reader.Wanted(self._lookback(_ends(positions), positions), positions.ids)
        return kinds.countable(self.compiled, self.events(wanted))

    def _lookback(self, ranges: Iterable[Range], positions: Positions) -> list[Range]:
        """The ranges before these ranges that decide which of their events are copies."""
        view = self.compiled.view
        if view.horizon is None:
            return []
        return find_lookback(self.events, positions.ids, (r for r in ranges if r.topic in view.reads), view.horizon)

    def events(self, wanted: archive_reader.Wanted) -> EventFrames:
        """The valid events of the view's topics in these ranges."""
        return self._read(wanted, self._event_types())

    def _read(self, wanted: archive_reader.Wanted, types: EventTypes) -> EventFrames:
        """Read each topic by itself: Spark cannot see that decoded bytes of one topic have no events of another."""
        return {topic: self._read_topic(topic, each, wanted.of_topic(topic)) for topic, each in types.items()}

    def _read_topic(self, topic: str, event_type: EventType, wanted: archive_reader.Wanted) -> DataFrame:
        if self.shared is not None and self.from_raw:
            return self.shared.events(event_type, wanted)
        return archive_reader.read_events(
            self.context.spark, self.context.settings, event_type, wanted, from_raw=self.from_raw
        )

    def ticks(self, positions: Positions) -> clock.ReadTicks:
        """The function that reads ticks from the archive."""
        types = {clock.TOPIC: self.context.event_types[clock.TOPIC]}

        def read(begin: int, end: int, since: datetime | None) -> DataFrame:
            wanted = archive_reader.Wanted([Range(clock.TOPIC, 0, begin, end)], positions.ids, since)
            return self._read(wanted, types)[clock.TOPIC]

        return read

    def stage_since(
        self, begin: Positions, end: Positions, only: RowFilter = all_rows, archived: Positions | None = None
    ) -> StagedRows:
        """Stage the totals of the records from `begin` to `end`, read from the log, which is ahead of the archive.

        `archived` are positions that the archive has reached, if it has not reached `begin`.
        """
        types, settings = self._event_types(), self.context.settings
        ranges = begin.only(types).ranges_to(end.only(types))
        if not ranges:
            return stage.NO_ROWS
        start = begin.plain() if self.compiled.view.horizon is None else (archived or begin).plain()
        for each in self._lookback(_ends(archived or begin), begin):
            start[each.topic][each.partition] = each.start
        read = log_with_archive.read_events(self.context.spark, settings, types, Positions(start, begin.ids), end)
        excluded = self.excluded(end)
        return self._stage(lambda table: table.totals_of(kinds.countable(table, read, excluded, ranges), only))

    def merge_staged(self, schema: str, staged: StagedRows) -> None:
        """Merge staged rows into the view's tables in `schema`, within the caller's transaction."""
        stage.require_complete(self.connection, self.compiled, staged)
        kinds.add(self.connection, self.compiled, schema, staged)
        stage.clear(self.connection, self.compiled, staged)

    def require_reading(self) -> None:
        """Require that the view has counted its records under the readings by which this rebuild judges them.

        Raises:
            MeaningChanged: a topic was judged again, but the view or this process was not.
        """
        merge.require_reading(self.connection, self.compiled, self.readings)

    @property
    def readings(self) -> dict[str, int]:
        return event_version.readings_of(self._event_types().values())

    def event_versions(self, positions: Positions) -> dict[str, UsedVersions]:
        """The event versions that judge the records below `positions`, by topic."""
        types = self._event_types()
        return {
            topic: event_version.versions_below(types[topic], ends)
            for topic, ends in positions.offsets.items()
            if topic in types
        }

    def excluded(self, positions: Positions) -> list[Coordinates]:
        """The coordinates of the records below `positions` that the view's stream excluded."""
        rows = self.connection.execute(
            'SELECT topic, partition, "offset" FROM truelog.exclusion WHERE view = %s AND version = %s',
            (self.compiled.name, self.compiled.view.version),
        ).fetchall()
        excluded = [(str(t), int(str(p)), int(str(o))) for t, p, o in rows]
        return [(t, p, o) for t, p, o in excluded if o < positions.at(t, p)]

    def exclude_and_retry(self, events: Callable[[], EventFrames], attempt: Callable[[], _T]) -> _T:
        """Run `attempt`; if the transform fails on some events, exclude these records and run `attempt` again.

        The archive may contain bad records that the stream has not read yet. `events` is called only after a failure.

        Raises: the first error, if no single record causes it.
        """

        def without(excluded: Sequence[Excluded]) -> _T:
            merge.exclude(self.connection, self.compiled, excluded)
            return attempt()

        return bad_records.exclude_and_retry(self.compiled, events, without)

    def unfounded_exclusions(self, positions: Positions) -> list[Coordinates]:
        """The excluded records below `positions` on which the transform does not fail."""
        excluded = self.excluded(positions)
        if not excluded:
            return []
        wanted = archive_reader.Wanted.of(excluded, positions.ids)
        return bad_records.unfounded_exclusions(self.compiled, self.events(wanted), excluded)

    def _event_types(self) -> EventTypes:
        return {topic: self.context.event_types[topic] for topic in self.compiled.view.topics}


@dataclass(frozen=True)
class _At:
    """The archive up to these positions, as the source of a rebuild."""

    rebuilder: Rebuilder
    positions: Positions

    def states(self, table: CompiledView) -> DataFrame:
        return self.rebuilder.of_table(table).states(self.positions)

    def summed(self, table: CompiledView, only: RowFilter) -> DataFrame:
        return self.rebuilder.of_table(table).summed(self.positions, only)

    def remembered(self, table: CompiledView) -> EventFrames:
        return self.rebuilder.of_table(table).remembered(self.positions)


def _ends(positions: Positions) -> list[Range]:
    """The empty ranges at these positions."""
    return [Range(t, p, positions.at(t, p), positions.at(t, p)) for t, p in positions.partitions()]
