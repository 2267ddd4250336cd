"""Upkeep of the archive, once a day: few large files instead of many small ones, and no snapshots beyond need.

Neither touches positions: those are properties of the table. An archiver that commits meanwhile tries again.
"""

from datetime import UTC, datetime, timedelta

from pyspark.sql import SparkSession

from truelog.archive_table import identifier
from truelog.settings import CATALOG


def compact(spark: SparkSession, topic: str, *, least_files: int = 5) -> int:
    """Rewrite the small files of each log day and partition where there are so many; how many were rewritten."""
    [done] = spark.sql(
        f"CALL {CATALOG}.system.rewrite_data_files(table => '{identifier(topic)}', "
        f"options => map('min-input-files', '{least_files}', 'partial-progress.enabled', 'false'))"
    ).collect()
    return int(done.rewritten_data_files_count)


NOTHING = timedelta()  # not even the snapshots of a moment ago


def expire(spark: SparkSession, topic: str, *, older_than: timedelta = timedelta(days=3)) -> None:
    """Forget old snapshots, but never the newest, and delete files that only those pointed at."""
    until = datetime.now(UTC) - older_than
    spark.sql(
        f"CALL {CATALOG}.system.expire_snapshots(table => '{identifier(topic)}', retain_last => 1, "
        f"older_than => TIMESTAMP '{until:%Y-%m-%d %H:%M:%S.%f}')"
    ).collect()
