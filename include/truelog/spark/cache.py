"""Frames that Spark keeps for a while."""

from contextlib import ExitStack

from pyspark.sql import DataFrame
from pyspark.storagelevel import StorageLevel


def cached(cache: ExitStack, rows: DataFrame) -> DataFrame:
    """The same rows, which Spark keeps in memory or on disk until the stack is closed."""
    cache.callback(rows.persist(StorageLevel.MEMORY_AND_DISK).unpersist)
    return rows
