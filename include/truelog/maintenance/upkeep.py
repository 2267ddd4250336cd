"""Upkeep: removes data that is no longer needed and compacts small files, every six hours.

1. Delete staged rows that were never merged.
2. Delete ticks that no view's clock needs (`tick_retention`).
3. Delete alerts that were resolved long ago, and other rows past their retention (`retention`).
4. Delete Data Docs past their retention (`truelog.quality.gx_docs`).
5. Drop the tables and partials of superseded versions (`superseded`).
6. Delete rows of partials that have expired under a view's `keep`, and partials that an erasure has touched since a
   recompute has read their records.
7. In each table in object storage, rewrite small files into larger files, expire old snapshots, and remove files that
   were written but never committed.

Upkeep never changes positions, which are table properties. An archive commit that conflicts with upkeep is retried.
"""

from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import SparkSession

from truelog.alerts import store as alert_store
from truelog.archive.catalog_pointer import advance_pointer, load_newest
from truelog.archive.table import NAMESPACE, archived_positions, open_catalog
from truelog.batch import base, partials
from truelog.batch.batch_context import BatchContext, open_batch
from truelog.batch.rebuild import Rebuilder
from truelog.kernel import merge
from truelog.maintenance import retention, tick_retention
from truelog.maintenance.superseded import drop_superseded
from truelog.quality import gx_docs
from truelog.reconcile import row_diff
from truelog.storage.database import connect
from truelog.support.settings import CATALOG, Settings
from truelog.tables import kinds, stage
from truelog.tables.compiled_view import CompiledView

_RETENTION = timedelta(days=3)  # for snapshots and uncommitted files; no commit and no reader takes that long


@dataclass(frozen=True)
class TableUpkeep:
    """The result of upkeep on one table."""

    table: str
    rewritten_files: int
    orphans: int  # removed files that no snapshot referenced


@dataclass(frozen=True)
class Upkeep:
    """The result of one upkeep run: what it deleted, and the result for each table."""

    ticks: int
    alerts: int
    rows: int  # of other tables, past their retention
    data_docs: int
    superseded: list[str]  # dropped tables of superseded versions
    tables: list[TableUpkeep]

    def as_dict(self) -> dict[str, Any]:
        """The stable format for scripts."""
        return asdict(self)


def run_upkeep(settings: Settings) -> Upkeep:
    """Run all steps in a separate Spark session."""
    with open_batch(settings, "truelog upkeep", ()) as context:
        with connect(settings, autocommit=True) as connection:
            stage.sweep_all(connection)  # 1
            ticks = tick_retention.drop_old_ticks(connection, context.views.compiled)  # 2
            alerts = alert_store.delete_old(connection, timedelta(seconds=settings.alert_keep_seconds))  # 3
            rows = retention.delete_old_rows(connection, settings)  # 3
        docs = gx_docs.drop_old_pages(settings)  # 4
        superseded = [each.table for each in drop_superseded(settings)]  # 5
        for compiled in context.views.compiled:
            drop_expired_partials(context, compiled)  # 6
            for table in kinds.daily(compiled):
                partials.drop_touched(settings, table, at_once=False)  # 6
        done = [_maintain(context.spark, settings, table) for table in table_names(settings)]  # 7
        return Upkeep(ticks, alerts, rows, docs, superseded, done)


def drop_expired_partials(context: BatchContext, compiled: CompiledView) -> None:
    """If the view has `keep`, drop the rows of its partials that no rebuild at current or later positions will show."""
    settings = context.settings
    with connect(settings, autocommit=True) as connection:
        row_diff.lock_comparisons(connection, compiled.own.name)  # a comparison rebuilds at earlier positions
        archived = archived_positions(settings, compiled.view.topics)
        positions, rebuilder = merge.positions(connection, compiled), Rebuilder(context, connection, compiled)
        for table in kinds.daily(compiled):
            limit = rebuilder.cutoff(table, positions.earliest(archived))
            if limit is not None:
                partials.drop_before(context.spark, settings, table, limit)


def table_names(settings: Settings) -> list[str]:
    """The names of all tables in the archive, such as `log.page_view` and `partials.page_views_v1`."""
    with open_catalog(settings) as catalog:
        existing = {name for (name,) in catalog.list_namespaces()}
        return [
            ".".join(table)
            for ns in (NAMESPACE, partials.NAMESPACE, base.NAMESPACE)
            if ns in existing
            for table in catalog.list_tables(ns)
        ]


def _maintain(spark: SparkSession, settings: Settings, name: str) -> TableUpkeep:
    with open_catalog(settings) as catalog:
        load_newest(catalog, name)  # otherwise newer files would be removed as orphans
        rewritten = 0 if name.startswith(f"{base.NAMESPACE}.") else compact(spark, name)  # one file for each slice
        expire(spark, name)
        done = TableUpkeep(name, rewritten, remove_orphans(spark, name))
        if name.startswith(f"{NAMESPACE}."):  # otherwise the pointer would refer to deleted files until the next commit
            advance_pointer(catalog.load_table(name))
    return done


def compact(spark: SparkSession, table: str, *, least_files: int = 5) -> int:
    """Rewrite the small files of each log day and partition with at least `least_files`, and return their number."""
    [result] = spark.sql(
        f"CALL {CATALOG}.system.rewrite_data_files(table => '{table}', "
        f"options => map('min-input-files', '{least_files}', 'partial-progress.enabled', 'false'))"
    ).collect()
    return int(result.rewritten_data_files_count)


def expire(spark: SparkSession, table: str, *, older_than: timedelta = _RETENTION) -> None:
    """Expire old snapshots, but never the newest, and delete the files that only expired snapshots reference."""
    spark.sql(
        f"CALL {CATALOG}.system.expire_snapshots(table => '{table}', retain_last => 1, "
        f"older_than => {_ago(older_than)})"
    ).collect()


def remove_orphans(spark: SparkSession, table: str) -> int:
    """Remove files that a crashed writer never committed, and return how many were removed.

    Recent files stay, because they may belong to a commit in progress.
    """
    removed = spark.sql(
        f"CALL {CATALOG}.system.remove_orphan_files(table => '{table}', older_than => {_ago(_RETENTION)}, "
        f"prefix_listing => true)"
    )
    return len(removed.collect())


def _ago(age: timedelta) -> str:
    return f"TIMESTAMP '{datetime.now(UTC) - age:%Y-%m-%d %H:%M:%S.%f}'"
