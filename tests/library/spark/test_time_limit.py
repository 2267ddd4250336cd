"""The jobs of a thread end when the thread's time is up, and other jobs run on."""

import threading
from collections.abc import Iterable, Iterator

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from truelog.spark.time_limit import time_limit


def _slowly(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    threading.Event().wait()
    yield from batches


def test_a_job_is_cancelled_when_the_time_is_up(spark: SparkSession) -> None:
    endless = spark.range(1, numPartitions=1).mapInArrow(_slowly, "id bigint")
    with time_limit(spark, 0.5) as time_is_up:
        with pytest.raises(Exception, match="cancelled"):
            endless.collect()
        assert time_is_up.is_set()
        with pytest.raises(Exception, match="cancelled"):  # a job that begins later ends as well
            endless.collect()
    assert spark.range(5).count() == 5


def test_a_job_within_the_time_is_not_cancelled(spark: SparkSession) -> None:
    with time_limit(spark, 600) as time_is_up:
        assert spark.range(5).count() == 5
    assert not time_is_up.is_set()
