"""Where visitors come from: page views and visitors per hour and host, by the referring host and the language."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from truelog import Distinct, Sum, View

# A browser sends the URL of the page with the link. Browsers read a backslash as a slash.
_HOST = r"^[A-Za-z][A-Za-z0-9+.-]*://(?:[^/?#@\\]*@)?([^/?#:@\[\]\\<>^|\x00-\x20]+)(?::[0-9]*)?(?:[/?#\\]|$)"


def _host_of(url: str) -> Column:
    """The host of a URL in lower case. Any other text has none."""
    return F.nullif(F.lower(F.regexp_extract(url, _HOST, 1)), F.lit(""))


def transform(page_view: DataFrame) -> DataFrame:
    """One row per event."""
    return page_view.select(
        F.window("event_time", "1 hour").start.alias("hour"),
        "host",
        _host_of("referrer").alias("referrer_host"),
        "language",
        F.lit(1).alias("views"),
        F.col("visitor_id").alias("visitors"),
    )


VIEW = View(
    reads=("page_view",),
    transform=transform,
    key=("hour", "host", "referrer_host", "language"),
    measures={"views": Sum(), "visitors": Distinct(error=0.02)},
    checks=("views > 0", "visitors > 0"),
    columns={
        "hour": "start of the hour in which the page was viewed, by corrected event time",
        "host": "host of the URL; NULL if the URL has none",
        "referrer_host": "host of the page with the link, in lower case; NULL if the visitor came without one",
        "language": "preferred language of the browser",
        "views": "page views",
        "visitors": "distinct visitors, with a relative standard error of 2 %",
    },
    owner="web analytics",
)
