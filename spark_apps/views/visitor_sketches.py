"""Sketches of each day's visitors: how many they were, how long they waited, and whether a certain visitor was there.

Every column of a row takes little space, however many visitors there are, and has a stated error. The error of the
counts of page views is zero.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from truelog import Bloom, Distinct, Meaning, Quantiles, Sum, View

# The ten most viewed pages of each day, from exact counts; pages with the same number of views are in binary order.
TOP_PAGES = """
SELECT day, place, page, views, visitors FROM (
    SELECT day, page, views, visitors, row_number() OVER (PARTITION BY day ORDER BY views DESC, page) AS place
    FROM {view} WHERE page IS NOT NULL
) AS pages WHERE place <= 10
"""


def transform(page_view: DataFrame) -> DataFrame:
    """Two rows per event: one for the page and one for the whole day. An event without a page has only the second."""
    page = F.array_distinct(F.array(F.concat("host", "page"), F.lit(None)))
    return page_view.select(
        F.window("event_time", "1 day").start.alias("day"),
        F.explode(page).alias("page"),
        F.lit(1).alias("views"),
        F.col("visitor_id").alias("visitors"),
        "response_ms",
        F.col("visitor_id").alias("seen"),
    )


VIEW = View(
    reads=("page_view",),
    transform=transform,
    key=("day", "page"),
    measures={
        "views": Sum(),
        "visitors": Distinct(error=0.02),
        "response_ms": Quantiles(error=0.01),
        "seen": Bloom(capacity=100_000, error=0.01),
    },
    present={"top_pages": TOP_PAGES},
    all_if_null=("page",),
    checks=("views > 0", "visitors > 0"),
    meanings={
        "top_pages": Meaning(
            "the ten most viewed pages of each day", {"place": "rank of the page within the day, from 1"}
        )
    },
    columns={
        "day": "start of the day (UTC), by corrected event time",
        "page": "host and path of the page; NULL for the whole day",
        "views": "page views",
        "visitors": "distinct visitors, with a relative standard error of 2 %",
        "response_ms_p50": "median response time in milliseconds (of two middle values, the lower one), within 1 %",
        "response_ms_p95": "95 % of the response times are at most this, within 1 %",
        "response_ms_p99": "99 % of the response times are at most this, within 1 %",
        "seen": "the visitors: `truelog.seen(seen, 'v12')` is true for each of them, and for 1 % of all others if they "
        "are 100,000",
    },
    owner="web analytics",
)
