"""Upkeep of what lies in object storage, once a day: few large files instead of many small ones, and no snapshots
beyond need. Rows that never came from the staging tables into a merge are dropped, too.

Neither touches positions: those are properties of the table. An archiver that commits meanwhile tries again.
"""

from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import SparkSession

from truelog import partials, stage
from truelog.archive_table import NAMESPACE, open_catalog
from truelog.database import connect
from truelog.session import session
from truelog.settings import CATALOG, Settings


@dataclass(frozen=True)
class Kept:
    """What was done to a table."""

    table: str
    rewritten_files: int

    def as_dict(self) -> dict[str, Any]:
        """The stable form that scripts read."""
        return asdict(self)


def keep_up(settings: Settings) -> list[Kept]:
    """Compact and expire every table of the archive and of partials, in a Spark session of its own."""
    with connect(settings) as connection:
        stage.sweep_all(connection)
    spark = session(settings, "truelog upkeep")
    try:
        return [_keep_up(spark, table) for table in tables(settings)]
    finally:
        spark.stop()


def tables(settings: Settings) -> list[str]:
    """`log.page_view`, `partials.page_views_v1`: every table that there is."""
    with open_catalog(settings) as catalog:
        known = {name for (name,) in catalog.list_namespaces()}
        return [
            ".".join(table)
            for ns in (NAMESPACE, partials.NAMESPACE)
            if ns in known
            for table in catalog.list_tables(ns)
        ]


def _keep_up(spark: SparkSession, table: str) -> Kept:
    rewritten = compact(spark, table)
    expire(spark, table)
    return Kept(table, rewritten)


def compact(spark: SparkSession, table: str, *, least_files: int = 5) -> int:
    """Rewrite the small files of each log day and partition where there are so many; how many were rewritten."""
    [done] = spark.sql(
        f"CALL {CATALOG}.system.rewrite_data_files(table => '{table}', "
        f"options => map('min-input-files', '{least_files}', 'partial-progress.enabled', 'false'))"
    ).collect()
    return int(done.rewritten_data_files_count)


NOTHING = timedelta()  # not even the snapshots of a moment ago


def expire(spark: SparkSession, table: str, *, older_than: timedelta = timedelta(days=3)) -> None:
    """Forget old snapshots, but never the newest, and delete files that only those pointed at."""
    until = datetime.now(UTC) - older_than
    spark.sql(
        f"CALL {CATALOG}.system.expire_snapshots(table => '{table}', retain_last => 1, "
        f"older_than => TIMESTAMP '{until:%Y-%m-%d %H:%M:%S.%f}')"
    ).collect()
