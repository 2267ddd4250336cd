"""Repeated plans: a view's plans that are made once and executed for every small batch.

For a batch of some hundred events, Spark spends far more time on a plan than on the events. The sources of these plans
are files at fixed paths: the batch's events, and the queries of rows to load. Before each execution the view puts the
batch's files there. No other thread executes the view's plans, so no plan reads another batch's files.

A plan must not contain anything that remembers rows, because Spark would return those of the first execution: a
shuffle, a broadcast, a cached relation, a subquery, or a plan that adapts itself. A table with such a plan gets a new
plan for each batch.
"""

import json
import logging
import os
import shutil
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from psycopg import sql
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from truelog.log.records import Coordinates, EventFrames
from truelog.support.errors import BadDeclaration
from truelog.tables import plan, stage
from truelog.tables.dedupe.compile import LogTimes
from truelog.tables.stage import NO_ROWS, StagedRows
from truelog.tables.staging import changed_files
from truelog.tables.staging.batch_plans import BatchPlans
from truelog.tables.staging.event_files import EventFiles, FileFrames
from truelog.tables.table import Table

# The steps of an executed plan that take each row as it comes. All others may remember rows.
_FORGETFUL = {
    "Coalesce",
    "Expand",
    "Filter",
    "FlatMapGroupsInArrow",
    "Generate",
    "HashAggregate",
    "MapInArrow",
    "ObjectHashAggregate",
    "Project",
    "Range",
    "Sort",
    "SortAggregate",
    "Union",
    "Window",
    "WindowGroupLimit",
}

log = logging.getLogger("truelog.stream")


@dataclass
class RepeatedPlans(BatchPlans):
    """The plans of one view. `folder` belongs to the view; `spark` is a session for small batches."""

    folder: Path
    _batch: EventFiles | None = None
    _events: FileFrames | None = None
    _timed: FileFrames | None = None  # the same with log times as broker times
    _reports: dict[str, DataFrame | None] = field(default_factory=dict)  # by table; None if its plan remembers rows
    _loaded: dict[str, DataFrame] = field(default_factory=dict)  # by schema

    def events_of(self, batch: EventFiles, topics: Iterable[str]) -> FileFrames:
        """The frames of a batch's events in these topics, which are from now on what the plans read."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        schemas = {topic: batch.schemas[topic] for topic in topics}
        if self._events is None or self._events.schemas != schemas:  # a column was declared, or is needed only now
            self._events = FileFrames(self.spark, self.folder / "events", schemas)
            self._timed = FileFrames(self.spark, self.folder / "timed", schemas)
            self._reports.clear()
        self._point("events", batch.folder)
        shutil.rmtree(self.folder / "changed", ignore_errors=True)
        self._batch = batch
        return self._events

    def timed(self, events: EventFrames, before: LogTimes) -> EventFrames:
        assert self._batch is not None  # noqa: S101
        assert self._timed is not None  # noqa: S101
        timed = changed_files.with_log_times(self._new_folder(), self._batch, events, before)
        self._point("timed", timed.folder)
        return self._timed

    @contextmanager
    def without(self, events: EventFrames, found: Collection[Coordinates]) -> Iterator[EventFrames]:
        """During the block, the files of the batch are others, without these records."""
        if not found:
            yield events
            return
        whole = self._batch
        assert whole is not None  # noqa: S101
        self._batch = changed_files.without(self._new_folder(), whole, events, found)
        self._point("events", self._batch.folder)
        try:
            yield events
        finally:
            self._point("events", whole.folder)
            self._batch = whole

    def stage(self, table: Table, states: Callable[[], DataFrame]) -> StagedRows:
        if self._batch and table.derivation is None and not self._batch.have_events(table.view.reads):
            return NO_ROWS
        if table.name not in self._reports:
            reports = stage.reports(states(), table, self.settings)
            steps = remembering(reports)
            if any("memory" in step.lower() for step in steps):
                raise BadDeclaration(f"{table.owner}: a transform must not cache a frame: it would see an old batch.")
            if steps:
                log.info("%s gets a new plan for each batch: %s", table.name, ", ".join(sorted(steps)))
            self._reports[table.name] = None if steps else reports
            return stage.accepted(reports)
        repeated = self._reports[table.name]
        return stage.accepted(stage.reports(states(), table, self.settings) if repeated is None else repeated)

    def _point(self, name: str, folder: Path) -> None:
        """From now on, the path `name` leads to this folder."""
        link = self.folder / "next"
        link.symlink_to(folder)
        os.replace(link, self.folder / name)

    def _new_folder(self) -> Path:
        """A folder for this batch alone: a worker may still read the files of the last one."""
        folder = self.folder / "changed" / uuid.uuid4().hex
        folder.mkdir(mode=0o700, parents=True)
        return folder

    def repeats(self, table: Table) -> bool:
        """Whether the table's plan is made once."""
        return self._reports.get(table.name) is not None

    def stage_each(
        self,
        tables: Iterable[Table],
        common: Callable[[], DataFrame],
        states: Callable[[Table, DataFrame], DataFrame],
    ) -> list[StagedRows]:
        """Each plan makes the common rows itself, because a plan must not remember them."""

        def states_of(table: Table) -> DataFrame:
            return states(table, common())

        return [self.stage(table, partial(states_of, table)) for table in tables]

    def tasks(self, rows: int, rows_per_task: int) -> int:
        return 1

    def load(self, queries: Sequence[sql.Composed], schema: StructType) -> DataFrame:
        file, key = self.folder / "queries.json", schema.json()
        file.write_text(json.dumps([each.as_string(None) for each in queries]))
        if key not in self._loaded:
            path = str(file)
            self._loaded[key] = stage.load(self.spark, self.settings, lambda: _queries(path), len(queries), schema)
        return self._loaded[key]


def _queries(path: str) -> list[str]:
    """Runs in the executors' Python."""
    found: list[str] = json.loads(Path(path).read_text())
    return found


def remembering(frame: DataFrame) -> set[str]:
    """The steps of a frame's executed plan that may remember rows."""
    executed = frame._jdf.queryExecution().executedPlan()
    steps = {str(node.nodeName()) for node in plan.nodes(executed)}
    return (steps - _FORGETFUL) | ({"Subquery"} if executed.subqueriesAll().nonEmpty() else set())
