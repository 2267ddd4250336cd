"""Compiler: what a view may declare."""

from dataclasses import replace

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tests.beds.lab import Lab
from truelog import Max, View
from truelog.support.errors import BadDeclaration


def _transform(click: DataFrame) -> DataFrame:
    return click.select("url", F.col("visitor_id").alias("visitor"), F.col("event_time").alias("at"))


LAST = View(reads=("click",), transform=_transform, key=("url",), measures={"visitor": Max(), "at": Max()})


def test_an_index_that_could_refuse_a_value_is_refused(lab: Lab) -> None:
    assert lab.compiled("last", replace(LAST, indexes=(("at", "url"),)))
    with pytest.raises(BadDeclaration, match="can contain every value of visitor"):
        lab.compiled("last", replace(LAST, indexes=(("url", "visitor"),)))
