"""The plan of a frame without rows, which fingerprints depend on."""

import re

import pytest
from pyspark.sql import DataFrame, SparkSession

from truelog.log import records
from truelog.schema.event import load_events
from truelog.tables import plan
from truelog.tables.plan import empty_frame

TYPES = load_events()


@pytest.mark.parametrize("topic", TYPES)
def test_it_has_the_plan_of_a_frame_whose_rows_passed_through_python(spark: SparkSession, topic: str) -> None:
    schema = records.schema(TYPES[topic])
    made, usual = empty_frame(spark, schema), spark.createDataFrame([], schema)

    assert made.schema == usual.schema == schema
    assert plan_text(made) == plan_text(usual)
    assert plan.source(made) != plan.source(usual)
    assert made.collect() == []


def plan_text(frame: DataFrame) -> str:
    """The analysed plan without the numbers of its columns, which differ in each run."""
    return re.sub(r"#\d+", "", plan.analyzed(frame).toString())
