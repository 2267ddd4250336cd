"""Decoded frames: only the needed columns leave Python, and every declared field is still validated."""

import json
from datetime import UTC, datetime

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructType, TimestampType

from truelog import View
from truelog.log import records
from truelog.log.positions import Range
from truelog.schema.event import EventTypes
from truelog.schema.loading.events import load_events
from truelog.streaming.portions import records_are_reread
from truelog.tables.compiled_view import CompiledView, needed_columns
from truelog.tables.table import Table

NOW = datetime(2026, 1, 5, tzinfo=UTC)
CLICK = {"event_id": "e", "url": "u", "search_id": "s", "visitor_id": "v", "occurred_at": NOW.isoformat()}
VALUES = [CLICK, CLICK | {"visitor_id": 7}, CLICK | {"url": "w"}]  # the second has an invalid field that no view needs
RAW = (
    StructType()
    .add("topic", StringType())
    .add("partition", IntegerType())
    .add("offset", LongType())
    .add("broker_time", TimestampType())
    .add("value", BinaryType())
)


@pytest.mark.parametrize(
    ("records_of_topics", "are_few"),
    [([], True), ([20_000], True), ([20_001], False), ([20_000] * 5, True), ([20_000] * 6, False)],
)
def test_a_batch_is_small_if_each_topic_has_few_records(records_of_topics: list[int], are_few: bool) -> None:
    ranges = [
        each
        for number, count in enumerate(records_of_topics)
        for each in (Range(f"t{number}", 0, 0, count // 2), Range(f"t{number}", 1, 5, 5 + count - count // 2))
    ]
    assert records.are_few(ranges) == are_few


@pytest.fixture
def types() -> EventTypes:
    return {"click": load_events()["click"]}


@pytest.fixture
def raw(spark: SparkSession) -> DataFrame:
    rows = [("click", 0, offset, NOW, json.dumps(value).encode()) for offset, value in enumerate(VALUES)]
    return spark.createDataFrame(rows, RAW)


@pytest.mark.parametrize("needed", [{"url"}, {"url", "offset"}, {"offset"}, set()])
def test_only_needed_columns_leave_python(raw: DataFrame, types: EventTypes, needed: set[str]) -> None:
    whole, fewer = records.decoded(raw, types), records.decoded(raw, types, {"click": needed})
    reasons = [row.invalid for row in whole.orderBy("offset").collect()]
    assert [reason is None for reason in reasons] == [True, False, True]
    assert [row.invalid for row in fewer.orderBy("offset").collect()] == reasons
    events, all_events = records.events(fewer, types)["click"], records.events(whole, types)["click"]
    assert events.columns == ["topic", "partition", "offset", "broker_time", *sorted(needed - {"offset"})]
    assert sorted(events.collect()) == sorted(all_events.select(*events.columns).collect())


def test_a_topic_that_no_view_reads_keeps_its_columns(raw: DataFrame, types: EventTypes) -> None:
    assert records.decoded(raw, types, {"ticks": {"ends"}}).schema == records.decoded(raw, types).schema


def _view(scans: int, *columns: str) -> CompiledView:
    view = View(reads=("click",), transform=lambda click: click, key=("url",), measures={})
    return CompiledView((Table("v", view, {}, "", columns={"click": frozenset(columns)}, scans=scans),))


def test_a_batch_has_the_columns_of_all_its_views() -> None:
    assert needed_columns([_view(1, "url"), _view(1, "search_id")]) == {"click": {"url", "search_id"}}


def test_spark_keeps_a_batch_that_is_read_more_than_once() -> None:
    assert not records_are_reread([_view(1, "url")])
    assert records_are_reread([_view(1, "url"), _view(1, "url")])
    assert records_are_reread([_view(2, "url")])
