"""Failing records: one job and a probe of each record alone find the same records."""

import pytest
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tests.laws.bench import make_bench
from tests.laws.lab import Lab
from tests.laws.views import VIEWS
from truelog import Sum, View
from truelog.kernel import bad_records
from truelog.kernel.failing_records import failing_records
from truelog.log import records

_SIZE = 60


def _fails_if(condition: Column, value: Column) -> Column:
    return F.when(condition, F.raise_error(F.lit("planted"))).otherwise(value)


def _projection(page_view: DataFrame) -> DataFrame:
    return page_view.select(_fails_if(F.col("offset") % 7 == 3, F.lit("a")).alias("key"), F.lit(1).alias("n"))


def _shared_part(page_view: DataFrame) -> DataFrame:
    """Two columns use the failing part."""
    rows = page_view.withColumn("shared", F.lit(10) / (F.col("offset") % 5))
    return rows.select((F.col("shared") * 2).cast("string").alias("key"), (F.col("shared") + 1).cast("int").alias("n"))


def _filters(page_view: DataFrame) -> DataFrame:
    """A filter protects the projection from most of the failing records, and fails on one record itself."""
    rows = page_view.where(_fails_if(F.col("offset") == 11, F.col("offset") % 5 != 0) | (F.col("offset") == 20))
    rows = rows.select(F.lit(10) / (F.col("offset") % 5), "offset").toDF("share", "place")
    return rows.where(F.col("share") > 2).select(F.lit("a").alias("key"), F.col("share").cast("int").alias("n"))


def _union(page_view: DataFrame) -> DataFrame:
    return _projection(page_view).unionByName(_filters(page_view))


@pytest.mark.parametrize("transform", [_projection, _shared_part, _filters, _union])
def test_one_job_finds_the_records_that_fail_alone(lab: Lab, transform: object) -> None:
    view = View(reads=("page_view",), transform=transform, key=("key",), measures={"n": Sum()})  # type: ignore[arg-type]
    bench = make_bench(lab, view)
    events = {"page_view": bench.events(0, _SIZE)["page_view"].persist()}
    rows = bench.compiled.prepared(bench.compiled.transformed(events))
    alone = [
        ("page_view", 0, offset)
        for offset in range(_SIZE)
        if bad_records._failure(bench.compiled, events, bad_records._Span("page_view", 0, offset, offset))
    ]

    assert failing_records(rows, _SIZE) == alone
    assert 0 < len(alone) < _SIZE
    assert failing_records(rows, 3) is not None
    events["page_view"].unpersist()


@pytest.mark.parametrize("name", VIEWS)
def test_no_record_of_a_total_transform_fails(lab: Lab, name: str) -> None:
    """One job can examine each view of the catalogue."""
    compiled = lab.compiled(name, VIEWS[name])
    events = {t: lab.spark.createDataFrame([], records.schema(lab.types[t])) for t in compiled.view.reads}
    assert failing_records(compiled.prepared(compiled.transformed(events)), 10) == []
