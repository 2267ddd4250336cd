"""Sensor alerts: runs of readings out of range. Three in a row mean that the machine malfunctions.

A run ends with the first reading in range. The view has the part of a run in each hour, and the relation `runs` joins
the parts of several hours. Readings at the same time are in the order of the log. Each reading says its own range, so a
changed range does not change what earlier readings meant. A reading that was sent again counts once in its hour.
"""

import sys

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from truelog import Group, Meaning, once

# A part continues the run of the part before it if no reading is between them, also none in an hour without parts.
RUNS = """
SELECT sensor_id, min(started_at) AS started_at, max(ended_at) AS ended_at, sum(readings)::bigint AS readings,
    max(worst) AS worst, max(machine_id) AS machine_id,
    CASE WHEN sum(readings) >= 3 THEN 'malfunction' ELSE 'out_of_range' END AS kind
FROM (
    SELECT *, count(*) FILTER (WHERE NOT continues) OVER (PARTITION BY sensor_id ORDER BY hour, number) AS run
    FROM (
        SELECT *, coalesce(is_first AND was_last AND NOT EXISTS (
            SELECT FROM {inputs} AS i WHERE i.sensor_id = part.sensor_id AND i.hour > hour_before AND i.hour < part.hour
        ), false) AS continues
        FROM (
            SELECT *, lag(hour) OVER hours AS hour_before, lag(is_last) OVER hours AS was_last
            FROM {view} WINDOW hours AS (PARTITION BY sensor_id ORDER BY hour, number)
        ) AS part
    ) AS linked
) AS numbered GROUP BY sensor_id, run
"""

# The machines with malfunctions: how many, the longest, and when the last one ended.
MACHINES = """
SELECT machine_id, count(*) AS runs, max(readings) AS longest, max(ended_at) AS last_ended_at
FROM ({runs}) AS runs WHERE kind = 'malfunction' GROUP BY machine_id
""".replace("{runs}", RUNS)


def transform(reading: DataFrame) -> DataFrame:
    """One row per reading: whether it is out of range, and by how much."""
    over, under = F.col("measured") - F.col("highest"), F.col("lowest") - F.col("measured")
    excess = F.least(F.greatest(over, under), F.lit(sys.float_info.max))  # finite readings may be further apart
    hour, at = F.date_trunc("hour", "event_time").alias("hour"), F.col("event_time").alias("at")
    return reading.select("sensor_id", hour, at, "machine_id", excess.alias("excess"), "event_id")


def fold(readings: DataFrame) -> DataFrame:
    """The readings of some sensors and hours → one row for each run out of range, within its hour."""
    hour = Window.partitionBy("sensor_id", "hour")
    in_order = hour.orderBy("at", "topic", "partition", "offset")
    is_out = F.coalesce(F.col("excess") > 0, F.lit(False)).alias("is_out")
    judged = once(readings, "sensor_id", "hour").select("*", is_out, F.row_number().over(in_order).alias("place"))
    was_out = F.coalesce(F.lag("is_out").over(in_order), F.lit(False))
    begins = judged.select("*", (F.col("is_out") & ~was_out).cast("int").alias("begins"))
    numbered = begins.select(
        "*", F.sum("begins").over(in_order).cast("int").alias("number"), F.max("place").over(hour).alias("last_place")
    )
    return (
        numbered.where("is_out")
        .groupBy("sensor_id", "hour", "number")
        .agg(
            F.min("at").alias("started_at"),
            F.max("at").alias("ended_at"),
            F.count("*").alias("readings"),
            F.max("excess").alias("worst"),
            F.max("machine_id").alias("machine_id"),
            (F.min("place") == 1).alias("is_first"),
            (F.max("place") == F.max("last_place")).alias("is_last"),
        )
    )


VIEW = Group(
    reads=("reading",),
    transform=transform,
    by=("sensor_id", "hour"),
    inputs=("at", "machine_id", "excess", "event_id"),
    fold=fold,
    key=("sensor_id", "hour", "number"),
    values=("started_at", "ended_at", "readings", "worst", "machine_id", "is_first", "is_last"),
    most=10_000,
    publish=True,  # for notifications of runs
    present={"runs": RUNS, "machines": MACHINES},
    checks=("readings > 0", "worst > 0", "ended_at >= started_at"),
    meanings={
        "runs": Meaning(
            "runs of readings out of range, whole, also over several hours",
            {
                "started_at": "time of the run's first reading, by corrected event time",
                "ended_at": "time of the run's last reading so far",
                "readings": "readings of the run, all out of range",
                "kind": "`malfunction` from three readings in a row, else `out_of_range`",
            },
        ),
        "machines": Meaning(
            "the machines with malfunctions",
            {
                "runs": "malfunctions of the machine's sensors",
                "longest": "readings of the longest of them",
                "last_ended_at": "when the last of them ended",
            },
        ),
        "inputs": Meaning(
            "readings, by sensor and hour",
            {
                "hour": "the hour of the reading, by corrected event time",
                "at": "time of the reading, by corrected event time",
                "excess": "how far the reading is out of range; at most 0 within it",
            },
        ),
    },
    columns={
        "sensor_id": "the sensor's id",
        "hour": "an hour of the run",
        "number": "number of the run in the hour",
        "started_at": "time of the run's first reading in the hour, by corrected event time",
        "ended_at": "time of the run's last reading in the hour",
        "readings": "readings of the run in the hour, all out of range",
        "worst": "how far the worst reading is out of range",
        "machine_id": "the machine that the sensor is on",
        "is_first": "whether the run has the sensor's first reading of the hour, so it may have begun before",
        "is_last": "whether the run has the sensor's last reading of the hour, so it may go on",
    },
    owner="factory",
    version=4,
)
