"""Repeated plans: a view's plans that are made once and executed for every small batch.

For a batch of some hundred events, Spark spends far more time on a plan than on the events. The sources of these plans
are files at fixed paths: the batch's events, and rows that were looked up. Before each execution the view puts the
batch's files there. No other thread executes the view's plans, so no plan reads another batch's files.

A plan must not contain anything that remembers rows, because Spark would return those of the first execution: a
shuffle, a broadcast, a cached relation, a subquery, or a plan that adapts itself. A table with such a plan gets a new
plan for each batch.
"""

import logging
import os
import shutil
import threading
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from pathlib import Path

import pyarrow as pa
from psycopg import sql
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from truelog.log.records import Coordinates, EventFrames
from truelog.support.errors import BadDeclaration
from truelog.tables import plan, stage
from truelog.tables.dedupe.compile import LogTimes
from truelog.tables.stage import NO_ROWS, StagedRows
from truelog.tables.staging import adbc_sessions, changed_files, event_files
from truelog.tables.staging.batch_plans import BatchPlans
from truelog.tables.staging.event_files import EventFiles, FileFrames
from truelog.tables.staging.local_task import LocalTask
from truelog.tables.staging.value_error import is_value_error
from truelog.tables.table import Derivation, Table

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


@dataclass(frozen=True)
class _Planned:
    """The plan of a table's rows, which follow from other tables in this way; `task` is None if it remembers rows."""

    derivation: Derivation | None
    task: LocalTask | None


@dataclass
class RepeatedPlans(BatchPlans):
    """The plans of one view. Both folders belong to the view; `spark` is a session for small batches.

    folder: links to the files of batches, which may be in memory.
    disk: rows that were looked up or computed, which may be many.
    """

    folder: Path
    disk: Path
    _batch: EventFiles | None = None
    _events: FileFrames | None = None
    _timed: FileFrames | None = None  # the same with log times as broker times
    slots: threading.Semaphore = field(default_factory=partial(threading.Semaphore, 1))  # for the plans of all views
    _tasks: dict[str, "_Planned"] = field(default_factory=dict)  # by table
    _loaded: dict[str, DataFrame] = field(default_factory=dict)  # by schema

    def events_of(self, batch: EventFiles, topics: Iterable[str]) -> FileFrames:
        """The frames of a batch's events in these topics, which are from now on what the plans read."""
        for folder in (self.folder, self.disk):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        schemas = {topic: batch.schemas[topic] for topic in topics}
        if self._events is None or self._events.schemas != schemas:  # a column was declared, or is needed only now
            self._events = FileFrames(self.spark, self.folder / "events", schemas)
            self._timed = FileFrames(self.spark, self.folder / "timed", schemas)
            self._tasks.clear()
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

    def forget_rows(self) -> None:
        """Remove the rows of the last batch from the disk."""
        for file in self.disk.glob("*.arrow"):
            file.unlink()

    def stage(self, table: Table, states: Callable[[], DataFrame]) -> StagedRows:
        if self._batch and table.derivation is None and not self._batch.have_events(table.view.reads):
            return NO_ROWS
        planned = self._tasks.get(table.name)
        if planned is None or planned.derivation != table.derivation:  # other rules are a part of the plan
            planned = self._tasks[table.name] = self._planned(table, states())
        if planned.task is None:
            return stage.stage_rows(states(), table, self.settings)
        try:
            with self.slots:
                return stage.load_here(planned.task.rows(self.disk / "rows.arrow"), table, self.settings)
        except Exception as error:
            if not is_value_error(error):
                del self._tasks[table.name]  # what the plan needs may be gone
            raise

    def _planned(self, table: Table, states: DataFrame) -> "_Planned":
        rows = table.hashed(states)
        steps = remembering(rows)
        if any("memory" in step.lower() for step in steps):
            raise BadDeclaration(f"{table.owner}: a transform must not cache a frame: it would see an old batch.")
        if steps:
            log.info("%s gets a new plan for each batch: %s", table.name, ", ".join(sorted(steps)))
        return _Planned(table.derivation, None if steps else LocalTask(rows))

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
        return table.name in self._tasks and self._tasks[table.name].task is not None

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
        """The rows are looked up at once, and are in a file until the next call with this schema."""
        arrow, key = to_arrow_schema(schema), schema.json()
        file = self.disk / f"loaded-{sha256(key.encode()).hexdigest()[:16]}.arrow"
        texts, written = [each.as_string(None) for each in queries], self.disk / "loading.arrow"
        with pa.OSFile(str(written), "wb") as sink, pa.ipc.new_file(sink, arrow) as writer:
            for batch in adbc_sessions.select_each(self.settings.staging_uri(), texts, arrow):
                writer.write_batch(batch)
        os.replace(written, file)  # a worker may still read the last one
        if key not in self._loaded:
            self._loaded[key] = event_files.frame(self.spark, file, arrow)
        return self._loaded[key]


def remembering(frame: DataFrame) -> set[str]:
    """The steps of a frame's executed plan that may remember rows."""
    executed = frame._jdf.queryExecution().executedPlan()
    steps = {str(node.nodeName()) for node in plan.nodes(executed)}
    return (steps - _FORGETFUL) | ({"Subquery"} if executed.subqueriesAll().nonEmpty() else set())
