"""Bursts: the largest number of requests that each address made within five minutes, by day.

The window slides: it begins with a request, and contains the requests less than five minutes later. It belongs to the
UTC day of its first request, so the requests of a day's first five minutes also count for the day before. Requests
without an address are not counted. An event that was sent again counts once.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from truelog import Group, Meaning, once

WINDOW = 5 * 60 * 1_000_000  # microseconds

PER_DAY = """
SELECT day, count(*) AS addresses, max(requests) AS largest,
    percentile_disc(0.99) WITHIN GROUP (ORDER BY requests) AS requests_p99
FROM {view} GROUP BY day
"""


def transform(page_view: DataFrame) -> DataFrame:
    """One row per request and day whose windows may contain it."""
    earlier = F.greatest(F.expr("event_time - INTERVAL 5 MINUTES"), F.expr("TIMESTAMP '0001-01-01'"))
    days = F.array_distinct(F.array(_day(F.col("event_time")), _day(earlier)))
    return page_view.select("ip", F.explode(days).alias("day"), F.col("event_time").alias("at"), "event_id")


def fold(requests: DataFrame) -> DataFrame:
    """The requests of some addresses and days → the largest window of each address and day."""
    group = Window.partitionBy("ip", "day")
    by_time = group.orderBy(F.unix_micros("at"))
    # Spark would count each window on its own. It counts these two in one pass.
    until_end = F.count("*").over(by_time.rangeBetween(Window.unboundedPreceding, WINDOW - 1))
    before = F.count("*").over(by_time.rangeBetween(Window.unboundedPreceding, -1))
    counted = once(requests, "ip", "day").select("*", (until_end - before).alias("requests"))
    begun = counted.where(_day(F.col("at")) == F.col("day"))
    best = begun.select("*", F.max("requests").over(group).alias("best")).where("requests = best")
    return best.groupBy("ip", "day").agg(F.max("requests").alias("requests"), F.min("at").alias("began_at"))


def _day(time: Column) -> Column:
    return F.date_trunc("day", time)


VIEW = Group(
    reads=("page_view",),
    transform=transform,
    by=("ip", "day"),
    inputs=("at", "event_id"),
    fold=fold,
    key=("ip", "day"),
    values=("requests", "began_at"),
    most=100_000,
    present={"per_day": PER_DAY},
    checks=("requests > 0",),
    meanings={
        "per_day": Meaning(
            "the addresses of each day and their bursts",
            {
                "addresses": "addresses with requests",
                "largest": "requests of the largest burst",
                "requests_p99": "99 of 100 addresses had no larger burst",
            },
        ),
        "inputs": Meaning("requests, by address and day", {"at": "time of the request, by corrected event time"}),
    },
    columns={
        "ip": "address of the visitor",
        "day": "UTC day of the windows' first requests",
        "requests": "most requests in a window of five minutes, by corrected event time",
        "began_at": "time of the first request of the first such window",
    },
    owner="security",
    version=2,
)
