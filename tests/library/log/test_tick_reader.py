"""The driver reads the same ticks as Spark, whether they are valid events or not."""

import json
from datetime import UTC, datetime, timedelta

from confluent_kafka import Producer
from pyspark.sql import SparkSession

from tests.deadline import deadline
from truelog.control import event_registry
from truelog.kernel import clock
from truelog.log import records, topics
from truelog.log.positions import Positions
from truelog.log.tick_reader import read_ticks
from truelog.log.valid_tick import TickRow
from truelog.schema.loading.events import load_events
from truelog.support.settings import Settings

TOPIC, EPOCH = clock.TOPIC, datetime(1970, 1, 1, tzinfo=UTC)
# The tick service continues from the newest tick of the topic, so the valid ticks are of the present.
NOW = datetime.now(UTC)
PRESENT = (NOW.replace(microsecond=0), NOW.replace(microsecond=123_456))
TIMES = (*(each.isoformat() for each in PRESENT), "1969-12-31T23:59:59.999999Z", "9999-12-31T00:00:00Z")


def tick(time: str, **fields: object) -> bytes:
    return json.dumps({"event_id": "t", "occurred_at": time, "ends": '{"page_view": {"0": 7}}'} | fields).encode()


SENT = [*map(tick, TIMES), b"{}", b"", b"\xff", tick(TIMES[0], ends=7), tick(TIMES[0], ends="not JSON"), tick("then")]


def send(settings: Settings) -> tuple[Positions, Positions]:
    """Send the values, and return the ends before and after them."""
    begin = topics.end_offsets(settings, [TOPIC])
    producer = Producer(settings.kafka())
    for value in SENT:
        producer.produce(TOPIC, value, partition=0)
    assert producer.flush(deadline(30)) == 0
    return begin, topics.end_offsets(settings, [TOPIC])


def test_the_driver_reads_the_ticks_that_spark_reads(platform: Settings, spark: SparkSession) -> None:
    topics.sync_topics(platform, load_events())
    types = {TOPIC: event_registry.event_types(platform)[TOPIC]}
    begin, end = send(platform)
    ranges = begin.ranges_to(end)
    found = list(read_ticks(platform, types[TOPIC], ranges))
    frame = records.events(records.read(spark, platform, types, ranges), types)[TOPIC]
    expected: list[TickRow] = sorted(map(tuple, frame.selectExpr(*clock._COLUMNS).collect()))
    assert sorted(found) == expected
    assert {each - EPOCH for each in PRESENT} <= {timedelta(microseconds=time) for _, time, _, _ in found}


def test_an_empty_range_has_no_ticks(platform: Settings) -> None:
    assert list(read_ticks(platform, load_events()[TOPIC], [])) == []
