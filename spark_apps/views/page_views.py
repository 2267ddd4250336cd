"""Page views per minute, host, page and browser: the number of views, and the bytes sent."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from truelog import Meaning, Sum, View

# The ten most viewed pages of each hour; pages with the same number of views are in binary order.
BUSIEST = """
SELECT hour, place, host, page, views FROM (
    SELECT date_trunc('hour', minute, 'UTC') AS hour, host, page, sum(views)::bigint AS views, row_number() OVER (
        PARTITION BY date_trunc('hour', minute, 'UTC') ORDER BY sum(views) DESC, host, page
    ) AS place
    FROM {view} GROUP BY 1, 2, 3
) AS pages WHERE place <= 10
"""


def transform(page_view: DataFrame) -> DataFrame:
    """One row per event: its cell of the cube, and what it adds to that cell."""
    return page_view.select(
        F.window("event_time", "1 minute").start.alias("minute"),
        "host",
        "page",
        "browser",
        F.lit(1).alias("views"),
        "bytes",
    )


VIEW = View(
    reads=("page_view",),
    transform=transform,
    key=("minute", "host", "page", "browser"),
    measures={"views": Sum(), "bytes": Sum()},
    present={"busiest": BUSIEST},
    checks=("views > 0", "bytes >= 0"),
    meanings={
        "busiest": Meaning(
            "the ten most viewed pages of each hour",
            {"hour": "start of the hour", "place": "rank of the page within the hour, from 1"},
        )
    },
    columns={
        "minute": "start of the minute in which the page was viewed, by corrected event time",
        "host": "host of the URL; NULL if the URL has none",
        "page": "path of the URL",
        "browser": "browser family",
        "views": "page views",
        "bytes": "bytes sent",
    },
    owner="web analytics",
    version=2,
)
