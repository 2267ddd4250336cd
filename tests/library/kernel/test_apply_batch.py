"""One batch of a view: what a second attempt counts, after a record on which the transform fails."""

import json
import uuid
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from psycopg import sql
from pyspark.sql import functions as F

from tests.beds.lab import Lab
from truelog import Sum, View
from truelog.archive.schema import TIME
from truelog.kernel.apply_batch import BatchApplier, EventRange
from truelog.log.positions import Positions
from truelog.spark.session import small_session
from truelog.support import faults
from truelog.tables import deploy, stage
from truelog.tables.staging import event_files
from truelog.tables.staging.event_files import FileFrames
from truelog.tables.staging.repeated_plans import RepeatedPlans

ADDED = View(
    reads=("click",),
    transform=lambda click: click.select("visitor_id", F.col("url").cast("bigint").alias("clicks")),
    key=("visitor_id",),
    measures={"clicks": Sum()},
    dedupe="1 hour",
)
NOW = datetime(2026, 11, 1, tzinfo=UTC)


def raw(*events: tuple[str, str], begin: int = 0) -> pa.RecordBatch:
    """Clicks with these ids and URLs, as records of one partition from an offset on."""
    values = [
        json.dumps(
            {"event_id": event, "occurred_at": NOW.isoformat(), "visitor_id": "v", "search_id": "s", "url": url}
        ).encode()
        for event, url in events
    ]
    columns = {
        "topic": pa.array(["click"] * len(values), pa.string()),
        "partition": pa.array([0] * len(values), pa.int32()),
        "offset": pa.array(range(begin, begin + len(values)), pa.int64()),
        "broker_time": pa.array([NOW] * len(values), TIME),
        "value": pa.array(values, pa.binary()),
    }
    return pa.RecordBatch.from_pydict(columns)


class Added:
    """A view that adds clicks, and batches of clicks."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        self.lab, self.folder, self.ids = lab, folder, {"click": uuid.uuid4().hex}
        self.small = small_session(lab.spark)
        self.compiled = lab.compiled(f"added_{uuid.uuid4().hex[:8]}", ADDED)
        deploy.deploy_table(lab.connection, self.compiled)

    def at(self, offset: int) -> Positions:
        return Positions({"click": {0: offset}}, self.ids)

    def plans(self) -> RepeatedPlans:
        return RepeatedPlans(self.small, self.lab.settings, self.folder / "views" / "added", self.folder / "disk")

    def batch(self, *events: tuple[str, str], begin: int = 0) -> EventRange:
        folder = self.folder / f"batch {begin} {len(events)}"
        folder.mkdir()
        files = event_files.write(folder, [raw(*events, begin=begin)], {"click": self.lab.types["click"]}, {})
        frames = FileFrames(self.small, files.folder, files.schemas)
        return EventRange(frames, self.at(begin), self.at(begin + len(events)), files=files)

    def apply(self, batch: EventRange, begin: int, plans: RepeatedPlans | None) -> None:
        BatchApplier(self.lab.settings).apply(self.lab.connection, self.compiled, batch, self.at(begin), plans)

    def stage_row(self, attempt: str) -> None:
        values = sql.SQL("INSERT INTO {} (_attempt, _row_hash, visitor_id, clicks) VALUES (%s, 1, 'v', 1)")
        self.lab.connection.execute(values.format(stage.table(self.compiled.own)), (attempt,))

    def staged(self) -> list[object]:
        """The attempts of the rows that are staged, in all tables of the view."""
        queries = (sql.SQL("SELECT _attempt FROM {}").format(stage.table(each)) for each in self.compiled.tables)
        return [attempt for each in queries for (attempt,) in self.lab.connection.execute(each).fetchall()]

    def clicks(self) -> object:
        query = sql.SQL("SELECT clicks FROM {}").format(sql.Identifier("state", self.compiled.own.name))
        [(clicks,)] = self.lab.connection.execute(query).fetchall()
        return clicks


# The id of a task that has loaded rows although its job failed, for example after the failure.
UNREPORTED = f"{stage._OWN}00"


def test_copies_stay_out_if_another_record_of_the_batch_fails(lab: Lab, tmp_path: Path) -> None:
    """The search for the record keeps the batch's events, copies included."""
    added = Added(lab, tmp_path)
    added.stage_row(UNREPORTED)
    added.apply(added.batch(("a", "1"), ("a", "1"), ("bad", "not a number"), ("c", "2")), 0, added.plans())
    assert (added.clicks(), added.staged()) == (3, [])
    excluded = 'SELECT "offset" FROM truelog.exclusion WHERE view = %s'
    assert lab.connection.execute(excluded, (added.compiled.name,)).fetchall() == [(2,)]


def test_the_plans_of_a_whole_small_batch_are_made_once(lab: Lab, tmp_path: Path) -> None:
    """Otherwise the rows are the same, and Spark makes a new plan for each batch."""
    added = Added(lab, tmp_path)
    plans = added.plans()
    added.apply(added.batch(("a", "1"), ("b", "2")), 0, plans)
    assert {each.name for each in added.compiled.tables if plans.repeats(each)} != set()
    made = {name: each for name, each in plans._tasks.items() if each.task is not None}
    added.apply(added.batch(("c", "4"), begin=2), 2, plans)
    assert added.clicks() == 7
    assert [name for name, each in made.items() if plans._tasks[name] is each] != []


@pytest.mark.parametrize("repeated", [True, False])
def test_a_batch_that_fails_leaves_only_rows_of_others_staged(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, repeated: bool
) -> None:
    """A rebuild may have staged rows, too. The next batch is not disturbed."""
    added = Added(lab, tmp_path)
    plans = added.plans() if repeated else None
    for attempt in ("other", UNREPORTED):
        added.stage_row(attempt)
    monkeypatch.setenv("TRUELOG_FAULT_FIRED", str(tmp_path / "fired"))
    monkeypatch.setattr(faults, "_armed", "merge.staged:1:raise")
    monkeypatch.setattr(faults, "_reached", 0)
    with pytest.raises(faults.FaultInjectedError):
        added.apply(added.batch(("a", "1"), ("b", "2")), 0, plans)
    assert added.staged() == ["other"]
    added.apply(added.batch(("a", "1"), ("b", "2"), ("c", "4")), 0, plans)
    assert (added.clicks(), added.staged()) == (7, ["other"])


@pytest.mark.parametrize("repeated", [True, False])
def test_a_view_within_a_batch_counts_the_rest_of_it(lab: Lab, tmp_path: Path, repeated: bool) -> None:
    added = Added(lab, tmp_path)
    plans = added.plans() if repeated else None
    added.apply(added.batch(("a", "1"), ("b", "2")), 0, plans)
    added.apply(added.batch(("a", "1"), ("b", "2"), ("c", "4")), 2, plans)
    assert added.clicks() == 7
    assert not [*(tmp_path / "disk").glob("*.arrow")], "rows of the last batch"
