"""A view of clicks, and other code for it, for the tests of replays."""

from dataclasses import replace

from pyspark.sql import functions as F

from tests.beds.archived import PER_URL

KEPT = replace(
    PER_URL, keep=None, present={"totals": "SELECT url, sum(spent)::bigint AS spent FROM {view} GROUP BY url"}
)
CLOCKED = replace(KEPT, keep=PER_URL.keep)
FAILING = replace(
    KEPT,
    transform=lambda click: KEPT.transform(click).withColumn(
        "spent",
        F.when(F.col("url") == "b", F.raise_error(F.lit("b is refused")).cast("long")).otherwise(F.col("spent")),
    ),
)
KEYED = replace(KEPT, key=("url",), transform=lambda click: KEPT.transform(click).drop("minute"))
DOUBLED = replace(KEPT, transform=lambda click: KEPT.transform(click).withColumn("spent", F.col("spent") * 2))
