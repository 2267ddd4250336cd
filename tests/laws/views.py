"""The views that the laws are held against: every view of the catalogue, and one that has every measure."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from truelog import Distinct, First, Latest, Max, Min, Quantiles, Sum, View, catalogue, latest


def _every_measure(page_view: DataFrame) -> DataFrame:
    return page_view.select(
        F.window("event_time", "1 minute").start.alias("minute"),
        "browser",
        F.lit(1).alias("views"),
        F.col("bytes").alias("total"),
        (F.col("bytes") % 1000 / F.lit(100).cast("decimal(3,0)")).cast("decimal(12,2)").alias("cents"),
        F.col("url").alias("first_url"),
        F.col("response_ms").alias("slowest"),
        F.col("visitor_id").alias("visitors"),
        F.col("response_ms").alias("response"),
        F.col("status").alias("statuses"),
        F.struct(F.col("event_time").alias("came_at"), F.col("language").alias("came_in")).alias("came"),
        latest("event_time", deleted=F.col("status") == 100, last_url="url", last_language="language").alias("last"),
    )


EVERY_MEASURE = View(
    reads=("page_view",),
    transform=_every_measure,
    key=("minute", "browser"),
    measures={
        "views": Sum(),
        "total": Sum(),
        "cents": Sum(),
        "first_url": Min(),
        "slowest": Max(),
        "visitors": Distinct(),
        "response": Quantiles(),
        "statuses": Quantiles(error=0.1),
        "came": First(2),
        "last": Latest(),
    },
)

VIEWS = {"every_measure": EVERY_MEASURE, **catalogue.load_all()}
