"""The views that the law tests use: every view in the catalogue, and a view with every measure."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from truelog import Distinct, First, Latest, Max, Min, Quantiles, Sum, View, latest
from truelog.views import catalogue


def _every_measure(page_view: DataFrame) -> DataFrame:
    """Select a column for each measure. Most column names are SQL keywords."""
    return page_view.select(
        F.window("event_time", "1 minute").start.alias("minute"),
        "browser",
        F.lit(1).alias("views"),
        F.col("bytes").alias("end"),
        (F.col("bytes") % 1000 / F.lit(100).cast("decimal(3,0)")).cast("decimal(12,2)").alias("user"),
        F.col("url").alias("order"),
        F.col("response_ms").alias("select"),
        F.col("visitor_id").alias("group"),
        F.col("response_ms").alias("table"),
        F.col("status").alias("primary"),
        F.struct(F.col("event_time").alias("from"), F.col("language").alias("to")).alias("came"),
        latest("event_time", deleted=F.col("status") == 100, when="url", then="language").alias("last"),
    )


EVERY_MEASURE = View(
    reads=("page_view",),
    transform=_every_measure,
    key=("minute", "browser"),
    measures={
        "views": Sum(),
        "end": Sum(),
        "user": Sum(),
        "order": Min(),
        "select": Max(),
        "group": Distinct(),
        "table": Quantiles(),
        "primary": Quantiles(error=0.1),
        "came": First(2),
        "last": Latest(),
    },
)

VIEWS = {"every_measure": EVERY_MEASURE, **catalogue.load_all_views()}
