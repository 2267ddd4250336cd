"""Spark's Python workers: no archive on their path, and what was imported for all of them is no garbage of theirs."""

import gc
import sys
from collections.abc import Iterable, Iterator
from zipimport import zipimporter

import pyarrow as pa
from pyspark.sql import SparkSession

IMPORTED = 50_000  # objects at least, of PySpark, pandas and pyarrow


def told(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What a worker has to say of itself."""
    list(batches)
    archives = [place for place in sys.path if place.endswith((".jar", ".zip"))]
    archives += [place for place, finder in sys.path_importer_cache.items() if isinstance(finder, zipimporter)]
    yield pa.RecordBatch.from_pydict({"archives": [archives], "frozen": [gc.get_freeze_count()]})


def test_a_worker_pays_for_no_archive_and_for_no_import(spark: SparkSession) -> None:
    shape = "archives array<string>, frozen bigint"
    for _ in range(2):  # the second task of a worker is the one that Spark would have it pay for
        [row] = spark.range(1, numPartitions=1).mapInArrow(told, shape).collect()
        assert row.archives == []
        assert row.frozen > IMPORTED
