"""Rebuilds a view at exact positions from the archive, with the same code as the stream.

Closed log days come from the view's partials, and all other records come from the archive, by offset
(`archive_source`). A rebuild is one large micro-batch into an empty table.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property, partial
from typing import TypeVar

from psycopg import sql
from pyspark.sql import DataFrame

from truelog.archive.reader import Wanted
from truelog.batch import log_with_archive
from truelog.batch.archive_source import ArchiveSource
from truelog.batch.batch_context import BatchContext
from truelog.batch.lookback import find_lookback
from truelog.batch.partial_selection import PartialSelection, select_partials
from truelog.batch.partials import Partials
from truelog.batch.shared_events import SharedEvents
from truelog.kernel import bad_records, clock, exclusions, merge
from truelog.kernel.exclusions import Excluded, Exclusions
from truelog.log.positions import Positions, Range
from truelog.log.records import Coordinates, EventFrames
from truelog.schema import event_version
from truelog.schema.event import EventTypes
from truelog.schema.event_version import UsedVersions
from truelog.storage.database import Connection
from truelog.tables import deploy, kinds, stage
from truelog.tables.compiled_view import CompiledView
from truelog.tables.row_filter import RowFilter, all_rows
from truelog.tables.stage import StagedRows
from truelog.tables.table import Table
from truelog.tables.tracing.contributions import transformed_by_record

_T = TypeVar("_T")


@dataclass(frozen=True)
class Rebuilder:
    """Rebuilds one view. If `from_raw` is true, it parses the archive's raw bytes again and ignores partials.

    `shared` holds the raw bytes that were parsed already for other views. Records below `begin` are not read, nor are
    partials then.
    """

    context: BatchContext
    connection: Connection
    compiled: CompiledView
    from_raw: bool = False
    shared: SharedEvents | None = None
    begin: Positions = field(default_factory=Positions)

    @cached_property
    def source(self) -> ArchiveSource:
        return ArchiveSource(self.context, self.from_raw, self.shared)

    def of_table(self, table: Table) -> "Rebuilder":
        """The rebuilder of one of the view's tables alone. The positions and the skipped records are the view's."""
        return replace(self, compiled=CompiledView((table,)))

    def rebuild(self, positions: Positions, only: RowFilter = all_rows) -> None:
        """Create `recon.<table>` as the table at `positions`, limited to the rows that `only` selects.

        Raises:
            ArchiveBehind: the archive has not reached the positions.
        """
        staged, now = self.stage_rows(positions, only), self.now(positions)
        with self.connection.transaction():
            self.create_tables("recon", staged)
            merge.drop_expired(self.connection, self.compiled, "recon", positions, now)

    def create_tables(self, schema: str, staged: StagedRows) -> None:
        """Create each of the view's tables in `schema`, with the staged rows, within the caller's transaction."""
        for each in self.compiled.tables:
            self.connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(sql.Identifier(schema, each.name)))
            deploy.create_table(self.connection, each, schema, each.name)
        self.merge_staged(schema, staged)

    def stage_rows(self, positions: Positions, only: RowFilter = all_rows) -> StagedRows:
        """Load the view at `positions`, limited to the rows that `only` selects, into the staging tables."""

        def attempt(rebuilder: "Rebuilder") -> StagedRows:
            return rebuilder._stage(lambda table: rebuilder.states(table, positions, only))

        return self.leaving_out_failures(positions, attempt)

    def leaving_out_failures(self, positions: Positions, attempt: Callable[["Rebuilder"], _T]) -> _T:
        """Run `attempt` with this rebuilder; if a fold fails, with a rebuilder that leaves out the failing groups."""
        return kinds.leaving_out_failures(
            kinds.without_expired(self.compiled, self.cutoff(self.compiled.own, positions)),
            lambda table: self.states(table, positions),
            lambda compiled: attempt(replace(self, compiled=compiled)),
        )

    def _stage(self, states: Callable[[Table], DataFrame]) -> StagedRows:
        stage.hold(self.connection, self.compiled)  # until the caller closes the connection
        staged = stage.stage_tables(self.compiled, states, self.context.settings)
        return replace(staged, failed=kinds.failed_groups(self.compiled))

    def states(self, table: Table, positions: Positions, only: RowFilter = all_rows) -> DataFrame:
        """A table at `positions` as states, one row for each key, including rows that `keep` will drop."""
        return kinds.kind_of(table).states(table, _At(self, positions), only)

    def summed(self, table: Table, positions: Positions, only: RowFilter) -> DataFrame:
        """The states of a table to which events are added, from partials and records."""
        stored, selected = self.selection(table, positions)
        events = self.countable(table, selected.records, positions)
        states = table.totals_of(events, only)
        partial_states = stored.read(self.context.spark, selected.partials)
        if partial_states is None:
            return states
        return table.plus(only(partial_states).unionByName(states))

    def selection(self, table: Table, positions: Positions) -> tuple[Partials, PartialSelection]:
        """The partials and the records from which `states` rebuilds a table of events.

        Partials that lack rows which readers saw at `positions` are not used.
        """
        if self.begin.offsets:
            return Partials(table), PartialSelection((), self.begin.ranges_to(positions.only(table.view.topics)))
        stored = self.partials(table)
        if stored.trimmed is not None:
            limit = self.cutoff(table, positions)
            if limit is None or limit < stored.trimmed:
                stored = Partials(table)
        return stored, select_partials(stored.ranges, positions.only(table.view.topics))

    def partials(self, table: Table) -> Partials:
        """The partials of a table that were made under the rebuilder's readings."""
        return self.source.partials(table, self.readings_of(table))

    def now(self, positions: Positions) -> datetime | None:
        """The log's clock at `positions` by the archive's ticks; None if the view has no clock, or no tick counts yet.

        The ticks that the stream has stored decide nothing here, because they may be wrong.
        """
        view, known = self.compiled.view, self.context.clocks
        if not view.reads_clock or clock.TOPIC not in positions.ids:
            return None
        at = (self.from_raw, view.reads, positions.only(view.topics).with_ids())
        if at not in known:
            known[at] = clock.at_from_ticks(self.source.ticks(positions), positions, view.reads)
        return known[at]

    def cutoff(self, table: Table, positions: Positions) -> datetime | None:
        """The expiry limit of a table at `positions`: older rows have expired. None if there is none."""
        return clock.cutoff_at(table, self.now(positions))

    def states_between(self, table: Table, begin: Positions, end: Positions) -> DataFrame:
        """The states of the archive's records from `begin` to `end`."""
        return table.totals_of(self.countable(table, begin.ranges_to(end), end))

    def countable_events(self, begin: Positions, end: Positions) -> EventFrames:
        """The valid events of the view's topics from `begin` to `end`, without the excluded records."""
        return self.countable(self.compiled.own, begin.ranges_to(end), end)

    def countable(self, table: Table, ranges: Collection[Range], positions: Positions) -> EventFrames:
        """The events in these ranges, which are below `positions`, that the table counts."""
        wanted = Wanted([*ranges, *self._lookback(table, ranges, positions)], positions.ids)
        return kinds.countable(table, self.source.events(table.view.topics, wanted), self.excluded(positions), ranges)

    def transformed_by_record(self, table: Table, wanted: Wanted, positions: Positions) -> DataFrame:
        """The transform's rows for these records below `positions` that count, each with its record."""
        return transformed_by_record(table, self.countable(table, wanted.ranges, positions))

    def remembered(self, table: Table, positions: Positions) -> EventFrames:
        """The events that the table `seen` has at `positions`."""
        wanted = Wanted(self._lookback(table, _ends(positions), positions), positions.ids)
        return kinds.countable(table, self.source.events(table.view.topics, wanted))

    def _lookback(self, table: Table, ranges: Iterable[Range], positions: Positions) -> list[Range]:
        """The ranges before these ranges that decide which of their events count."""
        seconds = kinds.lookback_seconds(table)
        if seconds is None:
            return []
        read = partial(self.source.events, table.view.topics)
        return find_lookback(read, positions.ids, (r for r in ranges if r.topic in table.view.reads), seconds)

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
        own = self.compiled.own
        start = begin.plain() if kinds.lookback_seconds(own) is None else (archived or begin).plain()
        for each in self._lookback(own, _ends(archived or begin), begin):
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

    def readings_of(self, table: Table) -> dict[str, int]:
        """The readings of a table's topics, without readings that are 0."""
        return {topic: reading for topic, reading in self.readings.items() if topic in table.view.topics}

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

    def exclusions(self, positions: Positions) -> Exclusions:
        """The view's exclusions in the topics of these positions."""
        return Exclusions(self.connection, self.compiled, positions.ids, self.readings)

    def excluded(self, positions: Positions) -> list[Coordinates]:
        """The coordinates of the records below `positions` that the view leaves out."""
        return self.exclusions(positions).below(positions)

    def exclude_and_retry(
        self, positions: Positions, events: Callable[[], EventFrames], attempt: Callable[[], _T]
    ) -> _T:
        """Run `attempt`; if the transform fails on some events, exclude these records and run `attempt` again.

        The archive may contain bad records that the stream has not read yet. `events` is called only after a failure,
        and returns events below `positions`.

        Raises: the first error, if no single record causes it.
        """

        def without(excluded: Sequence[Excluded]) -> _T:
            self.exclusions(positions).add(excluded)
            return attempt()

        return bad_records.exclude_and_retry(self.compiled, events, without)

    def prove_exclusions(self, positions: Positions) -> None:
        """Prove the exclusions below `positions` that are not proved yet; from raw bytes, all of them."""

        def unfounded(records: list[Coordinates]) -> list[Coordinates]:
            events = self.source.events(self.compiled.view.topics, Wanted.of(records, positions.ids))
            return bad_records.unfounded_exclusions(self.compiled, events, records)

        exclusions.prove(self.exclusions(positions), positions, unfounded, every=self.from_raw)

    def _event_types(self) -> EventTypes:
        return {topic: self.context.event_types[topic] for topic in self.compiled.view.topics}


@dataclass(frozen=True)
class _At:
    """The archive up to these positions, as the source of a rebuild."""

    rebuilder: Rebuilder
    positions: Positions

    def states(self, table: Table) -> DataFrame:
        return self.rebuilder.states(table, self.positions)

    def summed(self, table: Table, only: RowFilter) -> DataFrame:
        return self.rebuilder.summed(table, self.positions, only)

    def remembered(self, table: Table) -> EventFrames:
        return self.rebuilder.remembered(table, self.positions)


def _ends(positions: Positions) -> list[Range]:
    """The empty ranges at these positions."""
    return [Range(t, p, positions.at(t, p), positions.at(t, p)) for t, p in positions.partitions()]
