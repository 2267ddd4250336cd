"""Stragglers: how late events reach the log, per hour of event time, event type and source.

Every other view counts a late event in the row that it belongs to, unless the view sets `allowed_lateness`.
"""

from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from truelog import EventWindow, Max, Meaning, Quantiles, Sum, View, lateness

HOURS = EventWindow("hour", length="1 hour", grace="1 hour")

# The last 24 hours, by event type and source.
LATEST_DAY = """
SELECT event_type, source, sum(events)::bigint AS events, sum(late)::bigint AS late,
    round(sum(late) / sum(events), 4) AS late_share, max(latest_ms) AS latest_ms
FROM {view} WHERE hour > (SELECT max(hour) FROM {view}) - interval '24 hours' GROUP BY 1, 2
"""


def transform(*events: DataFrame) -> DataFrame:
    """One row per event. An event without a time of receipt was written to Kafka directly."""
    return reduce(lambda one, other: one.unionByName(other), map(_measured, events))


def _measured(events: DataFrame) -> DataFrame:
    hour = F.window("event_time", "1 hour").start
    milliseconds = F.expr("(unix_micros(broker_time) - unix_micros(event_time)) div 1000")
    return events.select(
        hour.alias("hour"),
        F.col("topic").alias("event_type"),
        F.when(F.col("received_at").isNull(), "kafka").otherwise("collector").alias("source"),
        F.lit(1).alias("events"),
        (lateness() > 3_600_000_000).cast("int").alias("late"),
        milliseconds.alias("lateness_ms"),
        milliseconds.alias("latest_ms"),
        HOURS.corrections(hour),
    )


VIEW = View(
    reads=("page_view", "search", "click"),
    transform=transform,
    key=("hour", "event_type", "source"),
    measures={
        "events": Sum(),
        "late": Sum(),
        "lateness_ms": Quantiles(error=0.01),
        "latest_ms": Max(),
        "corrections": Sum(),
    },
    present={"latest_day": LATEST_DAY},
    window=HOURS,
    checks=("events > 0", "late <= events", "corrections <= events"),
    meanings={
        "latest_day": Meaning(
            "how late the events of the last 24 hours were, by event type and source",
            {"late_share": "`late` divided by `events`"},
        )
    },
    columns={
        "hour": "start of the hour in which the events happened, by corrected event time",
        "event_type": "event type",
        "source": "`collector`, or `kafka` for events that were written to Kafka directly",
        "events": "events",
        "late": "events that reached the log more than an hour after their event time",
        "lateness_ms_p50": "median lateness in milliseconds (of two middle values, the lower one), within 1 %",
        "lateness_ms_p95": "95 % of the events were at most this late, within 1 %",
        "lateness_ms_p99": "99 % of the events were at most this late, within 1 %",
        "latest_ms": "greatest lateness in milliseconds",
        "corrections": "events that reached the log more than an hour after the end of the hour",
        "status": "`open` until an hour after the end of the hour; then `complete`, or `corrected` by late events",
    },
    owner="platform",
)
