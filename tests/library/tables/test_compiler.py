"""Compiler: what a view may declare."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tests.beds.lab import Lab
from truelog import Latest, Max, View, latest
from truelog.support.errors import BadDeclaration


def _transform(click: DataFrame) -> DataFrame:
    return click.select("url", F.col("visitor_id").alias("visitor"), F.col("event_time").alias("at"))


LAST = View(reads=("click",), transform=_transform, key=("url",), measures={"visitor": Max(), "at": Max()})


def test_an_index_that_could_refuse_a_value_is_refused(lab: Lab) -> None:
    assert lab.compiled("last", replace(LAST, indexes=(("at", "url"),)))
    with pytest.raises(BadDeclaration, match="can contain every value of visitor"):
        lab.compiled("last", replace(LAST, indexes=(("url", "visitor"),)))


def test_an_order_that_the_two_engines_do_not_share_is_refused(lab: Lab) -> None:
    """Among arrays, one with a NULL is great in PostgreSQL and small in Spark."""

    def transform(click: DataFrame) -> DataFrame:
        return click.select("url", latest(F.array("visitor_id")).alias("last"))

    with pytest.raises(BadDeclaration, match="Latest cannot aggregate struct<at:array<string>"):
        lab.compiled("last", replace(LAST, transform=transform, measures={"last": Latest()}))


def _since_the_last(click: DataFrame) -> DataFrame:
    last = click.agg(F.max("event_time")).scalar()
    return click.select("url", F.col("visitor_id").alias("visitor"), last.alias("at"))


def _with_own_rows(click: DataFrame) -> DataFrame:
    own = click.sparkSession.createDataFrame([("u", "v")], "url string, visitor string")
    return _transform(click).unionByName(own.withColumn("at", F.lit(0).cast("timestamp")))


@pytest.mark.parametrize(
    ("transform", "reason"),
    [(_since_the_last, "the transform uses a subquery"), (_with_own_rows, "the transform adds rows of its own")],
)
def test_a_contribution_that_does_not_follow_from_one_record_is_refused(
    lab: Lab, transform: Callable[[DataFrame], DataFrame], reason: str
) -> None:
    with pytest.raises(BadDeclaration, match=reason):
        lab.compiled("refused", replace(LAST, transform=transform))
