"""One batch of a view: what a second attempt counts, after a record on which the transform fails."""

import json
import uuid
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
from psycopg import sql
from pyspark.sql import functions as F

from tests.beds.lab import Lab
from truelog import Sum, View
from truelog.archive.schema import TIME
from truelog.kernel.apply_batch import BatchApplier, EventRange
from truelog.log.positions import Positions
from truelog.spark.session import small_session
from truelog.tables import deploy
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


def raw(*events: tuple[str, str]) -> pa.RecordBatch:
    """Clicks with these ids and URLs, as records of one partition."""
    values = [
        json.dumps(
            {"event_id": event, "occurred_at": NOW.isoformat(), "visitor_id": "v", "search_id": "s", "url": url}
        ).encode()
        for event, url in events
    ]
    columns = {
        "topic": pa.array(["click"] * len(values), pa.string()),
        "partition": pa.array([0] * len(values), pa.int32()),
        "offset": pa.array(range(len(values)), pa.int64()),
        "broker_time": pa.array([NOW] * len(values), TIME),
        "value": pa.array(values, pa.binary()),
    }
    return pa.RecordBatch.from_pydict(columns)


def test_copies_stay_out_if_another_record_of_the_batch_fails(lab: Lab, tmp_path: Path) -> None:
    """The search for the record keeps the batch's events, copies included."""
    events = raw(("a", "1"), ("a", "1"), ("bad", "not a number"), ("c", "2"))
    (tmp_path / "batch").mkdir()
    files = event_files.write(tmp_path / "batch", [events], {"click": lab.types["click"]}, {})
    compiled = lab.compiled(f"added_{uuid.uuid4().hex[:8]}", ADDED)
    deploy.deploy_table(lab.connection, compiled)
    small, ids = small_session(lab.spark), {"click": uuid.uuid4().hex}
    begin, end = (Positions({"click": {0: offset}}, ids) for offset in (0, 4))
    batch = EventRange(FileFrames(small, files.folder, files.schemas), begin, end, files=files)
    plans = RepeatedPlans(small, lab.settings, tmp_path / "views" / "added", tmp_path / "disk")
    BatchApplier(lab.settings).apply(lab.connection, compiled, batch, begin, plans)
    table = sql.Identifier("state", compiled.own.name)
    assert lab.connection.execute(sql.SQL("SELECT visitor_id, clicks FROM {}").format(table)).fetchall() == [("v", 3)]
    excluded = 'SELECT "offset" FROM truelog.exclusion WHERE view = %s'
    assert lab.connection.execute(excluded, (compiled.name,)).fetchall() == [(2,)]
