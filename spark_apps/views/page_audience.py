"""The audience of a host per minute: the number of visitors, and how long they waited."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from truelog import Distinct, Quantiles, Sum, View


def transform(page_view: DataFrame) -> DataFrame:
    """One row per event. The key has no page, because each sketch takes kilobytes."""
    return page_view.select(
        F.window("event_time", "1 minute").start.alias("minute"),
        "host",
        F.lit(1).alias("views"),
        F.col("visitor_id").alias("visitors"),
        "response_ms",
    )


VIEW = View(
    reads=("page_view",),
    transform=transform,
    key=("minute", "host"),
    measures={"views": Sum(), "visitors": Distinct(error=0.02), "response_ms": Quantiles(error=0.01)},
    checks=("views > 0", "visitors > 0"),
    columns={
        "minute": "start of the minute, by corrected event time",
        "host": "host of the URL; NULL if the URL has none",
        "views": "page views",
        "visitors": "distinct visitors, with a relative standard error of 2 %",
        "response_ms_p50": "median response time in milliseconds (of two middle values, the lower one), within 1 %",
        "response_ms_p95": "95 % of the response times are at most this, within 1 %",
        "response_ms_p99": "99 % of the response times are at most this, within 1 %",
    },
    owner="web analytics",
    version=2,
)
