"""The files of a batch with log times, or without some records: as Spark computes both."""

from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from random import Random

import pyarrow as pa
from pyspark.sql import DataFrame

from tests.beds.lab import Lab
from truelog.log import records
from truelog.log.range_reader import PLACE
from truelog.log.records import Coordinates
from truelog.spark.session import small_session
from truelog.tables.dedupe import compile as copies
from truelog.tables.staging import changed_files, event_files
from truelog.tables.staging.event_files import EventFiles, FileFrames

SCHEMA = pa.schema([*PLACE, pa.field("event_id", pa.string())])
BEGIN = datetime(2026, 3, 1, tzinfo=UTC)
TOPICS = ("click", "page_view", "order")


def drawn_batch(folder: Path, seed: int) -> EventFiles:
    """A batch of two topics in three Arrow batches each; the brokers' clocks go back and forth. A third is empty."""
    drawn, found = Random(seed), dict[str, list[pa.RecordBatch]]()
    for topic in TOPICS[:2]:
        for number in range(3):
            places = [
                (partition, number * 10 + offset) for partition in range(3) for offset in range(drawn.randint(0, 4))
            ]
            times = [BEGIN + timedelta(microseconds=drawn.randint(-5_000_000, 5_000_000)) for _ in places]
            rows = [(topic, p, o, time, f"{p}.{o}") for (p, o), time in zip(places, times, strict=True)]
            columns = [[row[index] for row in rows] for index in range(len(SCHEMA))]
            arrays = [pa.array(column, each.type) for column, each in zip(columns, SCHEMA, strict=True)]
            found.setdefault(topic, []).append(pa.RecordBatch.from_arrays(arrays, schema=SCHEMA))
    folder.mkdir()
    filled = {topic: batches for topic, batches in found.items() if any(each.num_rows for each in batches)}
    return event_files.save(folder, dict.fromkeys(TOPICS, SCHEMA), filled)


def collected(frames: dict[str, DataFrame] | FileFrames) -> dict[str, list[tuple[object, ...]]]:
    return {topic: sorted(map(tuple, frames[topic].select(*SCHEMA.names).collect())) for topic in TOPICS}


def test_log_times_are_those_of_spark(lab: Lab, tmp_path: Path) -> None:
    small = small_session(lab.spark)
    for seed in range(4):
        batch = drawn_batch(tmp_path / str(seed), seed)
        before = {("click", 0): BEGIN, ("click", 1): BEGIN + timedelta(days=1), ("page_view", 2): BEGIN - timedelta(1)}
        (folder := tmp_path / f"{seed}-timed").mkdir()
        changed = changed_files.with_log_times(folder, batch, TOPICS, before)
        spark_s = copies.timed(FileFrames(small, batch.folder, batch.schemas), before)
        assert collected(FileFrames(small, changed.folder, changed.schemas)) == collected(dict(spark_s))
        assert changed.filled == batch.filled


def test_records_are_left_out_as_by_spark(lab: Lab, tmp_path: Path) -> None:
    small = small_session(lab.spark)
    batch = drawn_batch(tmp_path / "batch", 7)
    whole = FileFrames(small, batch.folder, batch.schemas)
    rows = collected(whole)
    places: list[Coordinates] = [(str(t), int(str(p)), int(str(o))) for topic in TOPICS for t, p, o, *_ in rows[topic]]
    every_click = [each for each in places if each[0] == "click"]
    for number, found in enumerate((places[::2], every_click, [("click", 0, 10**6)])):
        (folder := tmp_path / str(number)).mkdir()
        left = changed_files.without(folder, batch, TOPICS, found)
        assert collected(FileFrames(small, left.folder, left.schemas)) == collected(
            dict(records.without_records(whole, found))
        )
        assert left.have_events(["click"]) == (found is not every_click)


def test_batches_are_joined_in_their_order(tmp_path: Path) -> None:
    parts = [drawn_batch(tmp_path / str(seed), seed) for seed in range(3)]
    (folder := tmp_path / "joined").mkdir()
    joined = event_files.join(folder, parts, TOPICS[1:])
    read = partial(event_files.read, "page_view")
    assert read([joined]).to_pylist() == [row for part in parts for row in read([part]).to_pylist()]
    assert set(joined.schemas) == set(TOPICS[1:])
    assert joined.filled == {"page_view"}
    assert read([joined]).num_rows > 0
    assert event_files.read("order", [joined]).num_rows == 0
