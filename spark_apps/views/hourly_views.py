"""Page views per hour, host and browser: the number of views, the bytes sent, and the number of visitors.

The page *Analytics* answers questions about `page_views` over long ranges from these rows, because they are few.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from truelog import Distinct, Sum, View


def transform(page_view: DataFrame) -> DataFrame:
    """One row per event. The key has no page, so a month has some thousand rows."""
    return page_view.select(
        F.window("event_time", "1 hour").start.alias("hour"),
        "host",
        "browser",
        F.lit(1).alias("views"),
        "bytes",
        F.col("visitor_id").alias("visitors"),
    )


VIEW = View(
    reads=("page_view",),
    transform=transform,
    key=("hour", "host", "browser"),
    measures={"views": Sum(), "bytes": Sum(), "visitors": Distinct(error=0.02)},
    hourly_of="page_views",
    checks=("views > 0", "bytes >= 0", "visitors > 0"),
    columns={
        "hour": "start of the hour in which the page was viewed, by corrected event time",
        "host": "host of the URL; NULL if the URL has none",
        "browser": "browser family",
        "views": "page views",
        "bytes": "bytes sent",
        "visitors": "distinct visitors, with a relative standard error of 2 %",
    },
    owner="web analytics",
)
