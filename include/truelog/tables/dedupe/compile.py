"""Copies: events that repeat the id of an earlier event, as a client sends them that retries a request.

The log time of an event is the greatest broker time of all valid events of its partition up to it, so it never goes
back, whatever the brokers' clocks do. An event is a copy if an earlier event of its partition has the same id, and a
log time at most the horizon before its own. It does not matter whether that event is a copy too, or whether a transform
fails on it. Which events are copies therefore follows from the log alone.

A view with `dedupe` keeps the ids of the horizon in the side table `seen`. Because log time never goes back, they are
the ids of the last events of each partition.
"""

from collections.abc import Mapping
from datetime import datetime
from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StringType

from truelog.measures.columns import clean
from truelog.measures.value import Value
from truelog.views.view import View

SEEN = "seen"  # the name of the side table
LOG_TIME = "log_time"
_MICROS = 1_000_000
_PARTITION = ("topic", "partition")

Frames = Mapping[str, DataFrame]
LogTimes = Mapping[tuple[str, int], datetime]  # of partitions


def seen_table(view: View) -> View:
    """The side table `seen` of a view with `dedupe`. Its rows are `remembered` events."""
    return View(
        reads=view.reads,
        transform=_seen,
        key=(*_PARTITION, "event_id", "offset"),
        measures={LOG_TIME: Value()},
        columns={
            "event_id": f"the event's id; an event with the same id within {view.dedupe} is a copy",
            LOG_TIME: "greatest broker time of the partition up to this event",
        },
        indexes=((*_PARTITION, LOG_TIME),),
    )


def _seen(*events: DataFrame) -> DataFrame:
    """A row for each event, whose broker time `timed` has replaced by its log time."""
    rows = (each.select(*_PARTITION, "event_id", "offset", F.col("broker_time").alias(LOG_TIME)) for each in events)
    return reduce(DataFrame.unionByName, rows)


def timed(events: Frames, before: LogTimes | None = None) -> Frames:
    """The events, with their log times as broker times. `before` has the log times of the partitions before them."""
    return {topic: frame.withColumn("broker_time", _log_time(topic, before or {})) for topic, frame in events.items()}


def remembered(events: Frames, horizon: int) -> Frames:
    """The events of each partition's last `horizon` seconds, with their log times as broker times."""
    latest = F.max(F.unix_micros("broker_time")).over(Window.partitionBy(*_PARTITION))
    in_horizon = F.unix_micros("broker_time") >= latest - F.lit(horizon * _MICROS)
    return {t: each.withColumn("_in", in_horizon).where("_in").drop("_in") for t, each in timed(events).items()}


def without_copies(events: Frames, horizon: int) -> Frames:
    """The events without the copies. `events` begin with the log, or early enough to contain all that have copies."""
    return {topic: _without_copies(topic, frame, horizon) for topic, frame in events.items()}


def _without_copies(topic: str, events: DataFrame, horizon: int) -> DataFrame:
    event_id = clean(F.col("event_id"), StringType())  # as in `seen`, where PostgreSQL compares it
    identified = events.withColumns({"_id": event_id, "_time": F.unix_micros(_log_time(topic, {}))})
    earlier = F.lag("_time").over(Window.partitionBy(*_PARTITION, "_id").orderBy("offset"))
    is_new = earlier.isNull() | (earlier < F.col("_time") - F.lit(horizon * _MICROS))
    return identified.withColumn("_new", is_new).where("_new").drop("_id", "_time", "_new")


def _log_time(topic: str, before: LogTimes) -> Column:
    so_far = Window.partitionBy(*_PARTITION).orderBy("offset").rowsBetween(Window.unboundedPreceding, 0)
    time = F.max("broker_time").over(so_far)
    known = [each for (name, partition), since in before.items() if name == topic for each in (partition, since)]
    return F.greatest(time, F.create_map(*map(F.lit, known))[F.col("partition")]) if known else time
