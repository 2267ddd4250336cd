"""Groups of clicks whose folds fail on some amounts."""

from dataclasses import replace

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from truelog import Group, Steps

HUGE, TWICE, THREE = str(2**63 - 1), "13", "333"


def _spent(click: DataFrame) -> DataFrame:
    minute = F.date_trunc("minute", "event_time").alias("minute")
    return click.select("url", minute, F.col("search_id").cast("bigint").alias("spent"))


def _fold(inputs: DataFrame) -> DataFrame:
    """The sum, in one row or in two rows with the same key. A group fails unless it has another number of clicks."""
    spent = F.sum("spent").alias("spent"), F.count("*").alias("clicks"), F.max("spent").alias("most")
    summed = inputs.groupBy("url", "minute").agg(*spent)
    fails = (F.col("most") == int(THREE)) & (F.col("clicks") != 3)
    checked = summed.withColumn("spent", F.when(fails, F.raise_error(F.lit("not three"))).otherwise(F.col("spent")))
    rows = F.when(F.col("most") == int(TWICE), F.sequence(F.lit(1), F.lit(2))).otherwise(F.array(F.lit(1)))
    return checked.select("url", "minute", "spent", F.explode(rows).alias("row")).drop("row")


SPENT = Group(
    reads=("click",),
    transform=_spent,
    by=("url", "minute"),
    inputs=("spent",),
    fold=_fold,
    key=("url", "minute"),
    values=("spent",),
)


def _none_spent() -> Column:
    return F.struct(F.lit(0).cast("bigint").alias("spent"))


def _more_spent(state: Column, click: Column) -> Column:
    return F.struct((state["spent"] + click["spent"]).alias("spent"))


IN_STEPS = replace(SPENT, fold=Steps(_none_spent, _more_spent, every=2))
