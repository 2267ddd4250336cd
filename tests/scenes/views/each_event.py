"""Page views by event id, so that a scene can tell a lost event from a doubled event."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from truelog import Sum, View


def transform(page_view: DataFrame) -> DataFrame:
    return page_view.select("event_id", F.lit(1).alias("views"))


VIEW = View(reads=("page_view",), transform=transform, key=("event_id",), measures={"views": Sum()})
