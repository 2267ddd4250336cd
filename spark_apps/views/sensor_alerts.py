"""Sensor alerts: runs of readings out of range. Three in a row mean that the machine malfunctions.

A run ends with the first reading in range, and at the end of the hour. If readings have the same time, a reading in
range comes first. Each reading says its own range, so a changed range does not change what earlier readings meant.
"""

import sys

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from truelog import Group, Meaning

MALFUNCTION = 3  # readings in a row

# The machines with malfunctions: how many, the longest, and when the last one ended.
MACHINES = """
SELECT machine_id, count(*) AS runs, max(readings) AS longest, max(ended_at) AS last_ended_at
FROM {view} WHERE kind = 'malfunction' GROUP BY machine_id
"""


def transform(reading: DataFrame) -> DataFrame:
    """One row per reading: whether it is out of range, and by how much."""
    over, under = F.col("measured") - F.col("highest"), F.col("lowest") - F.col("measured")
    excess = F.least(F.greatest(over, under), F.lit(sys.float_info.max))  # finite readings may be further apart
    hour, at = F.date_trunc("hour", "event_time").alias("hour"), F.col("event_time").alias("at")
    return reading.select("sensor_id", hour, at, "machine_id", excess.alias("excess"))


def fold(readings: DataFrame) -> DataFrame:
    """The readings of some sensors and hours → one row for each run out of range."""
    sensor = Window.partitionBy("sensor_id", "hour").orderBy("at")
    is_out = F.coalesce(F.col("excess") > 0, F.lit(False))
    runs = readings.select("*", F.sum((~is_out).cast("int")).over(sensor).alias("run")).where(is_out)
    found = runs.groupBy("sensor_id", "hour", "run").agg(
        F.min("at").alias("started_at"),
        F.max("at").alias("ended_at"),
        F.count("*").alias("readings"),
        F.max("excess").alias("worst"),
        F.max("machine_id").alias("machine_id"),
    )
    kind = F.when(F.col("readings") >= MALFUNCTION, "malfunction").otherwise("out_of_range")
    return found.select("*", kind.alias("kind")).drop("run")


VIEW = Group(
    reads=("reading",),
    transform=transform,
    by=("sensor_id", "hour"),
    inputs=("at", "machine_id", "excess"),
    fold=fold,
    key=("sensor_id", "hour", "started_at"),
    values=("ended_at", "readings", "worst", "machine_id", "kind"),
    most=10_000,
    present={"machines": MACHINES},
    checks=("readings > 0", "worst > 0", "ended_at >= started_at"),
    meanings={
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
                "at": "time of the reading, by corrected event time",
                "excess": "how far the reading is out of range; 0 within it",
            },
        ),
    },
    columns={
        "sensor_id": "the sensor's id",
        "hour": "hour of the run",
        "started_at": "time of the run's first reading, by corrected event time",
        "ended_at": "time of the run's last reading",
        "readings": "readings of the run, all out of range",
        "worst": "how far the worst reading is out of range",
        "machine_id": "the machine that the sensor is on",
        "kind": "`out_of_range`, or `malfunction` from three readings on",
    },
    version=2,
)
