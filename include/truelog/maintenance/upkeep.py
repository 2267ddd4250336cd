"""Upkeep, once a day: what nobody can need any more is dropped, and what is needed lies in few large files.

1. rows that never came from the staging tables into a merge
2. ticks that are no view's clock any more (`truelog.maintenance.tick_retention`)
3. alerts that were resolved long ago
4. Data Docs that are older than they are kept (`truelog.quality.gx_docs`)
5. rows of partials that a view's `keep` has outlived
6. in object storage, table by table: small files are rewritten into larger ones, old snapshots forgotten, and files
   removed that were written and never committed

None of it touches positions: those are properties of the table. An archiver that commits meanwhile tries again.
"""

from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import SparkSession

from truelog.alerts import alert_store
from truelog.archive.archive_commit import copy_pointer, require_newest
from truelog.archive.archive_table import NAMESPACE, open_catalog
from truelog.batch import partials
from truelog.batch.batch_context import open_batch
from truelog.kernel import clock, merge, stage
from truelog.maintenance import tick_retention
from truelog.quality import gx_docs
from truelog.reconcile import row_diff
from truelog.storage.database import connect
from truelog.support.settings import CATALOG, Settings
from truelog.views.compiled_view import Compiled

_AGE = timedelta(days=3)  # of snapshots and files that may go: no commit, and nobody who reads one, takes that long


@dataclass(frozen=True)
class Retained:
    """What was done to a table."""

    table: str
    rewritten_files: int
    orphans: int  # files that no snapshot pointed at, removed


@dataclass(frozen=True)
class Upkeep:
    """What was done."""

    ticks: int  # dropped
    alerts: int  # forgotten
    data_docs: int  # dropped
    tables: list[Retained]

    def as_dict(self) -> dict[str, Any]:
        """The stable form that scripts read."""
        return asdict(self)


def run_upkeep(settings: Settings) -> Upkeep:
    """All of it, in a Spark session of its own."""
    with open_batch(settings, "truelog upkeep", ()) as context:
        with connect(settings, autocommit=True) as connection:
            stage.sweep_all(connection)  # 1
            ticks = tick_retention.drop_old_ticks(connection, context.views.compiled)  # 2
            forgotten = alert_store.delete_old(connection, timedelta(seconds=settings.alert_keep_seconds))  # 3
        docs = gx_docs.drop_old_pages(settings)  # 4
        for compiled in context.views.compiled:
            drop_outlived(context.spark, settings, compiled)  # 5
        kept = [_keep_up(context.spark, settings, table) for table in tables(settings)]  # 6
        return Upkeep(ticks, forgotten, docs, kept)


def drop_outlived(spark: SparkSession, settings: Settings, compiled: Compiled) -> None:
    """Where the view has `keep`: rows that no rebuild at its positions, or later ones, will show."""
    with connect(settings, autocommit=True) as connection:
        row_diff.lock_comparisons(connection, compiled.table)  # a comparison rebuilds at positions of the past
        limit = clock.cutoff(connection, compiled, merge.positions(connection, compiled))
        if limit is not None:
            partials.drop_before(spark, settings, compiled, limit)


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


def _keep_up(spark: SparkSession, settings: Settings, name: str) -> Retained:
    with open_catalog(settings) as catalog:
        require_newest(catalog.load_table(name))
        rewritten = compact(spark, name)
        expire(spark, name)
        kept = Retained(name, rewritten, remove_orphans(spark, name))
        if name.startswith(f"{NAMESPACE}."):  # a quiet topic's archiver would leave it at files that are gone now
            copy_pointer(catalog.load_table(name))
    return kept


def compact(spark: SparkSession, table: str, *, least_files: int = 5) -> int:
    """Rewrite the small files of each log day and partition where there are so many; how many were rewritten."""
    [done] = spark.sql(
        f"CALL {CATALOG}.system.rewrite_data_files(table => '{table}', "
        f"options => map('min-input-files', '{least_files}', 'partial-progress.enabled', 'false'))"
    ).collect()
    return int(done.rewritten_data_files_count)


def expire(spark: SparkSession, table: str, *, older_than: timedelta = _AGE) -> None:
    """Forget old snapshots, but never the newest, and delete files that only those pointed at."""
    spark.sql(
        f"CALL {CATALOG}.system.expire_snapshots(table => '{table}', retain_last => 1, "
        f"older_than => {_ago(older_than)})"
    ).collect()


def remove_orphans(spark: SparkSession, table: str) -> int:
    """Remove files that were written and never committed, by what crashed in between; how many.

    Young ones may belong to a commit under way.
    """
    removed = spark.sql(
        f"CALL {CATALOG}.system.remove_orphan_files(table => '{table}', older_than => {_ago(_AGE)}, "
        f"prefix_listing => true)"
    )
    return len(removed.collect())


def _ago(age: timedelta) -> str:
    return f"TIMESTAMP '{datetime.now(UTC) - age:%Y-%m-%d %H:%M:%S.%f}'"
