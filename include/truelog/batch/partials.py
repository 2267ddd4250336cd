"""Partials: each contains a view's measures for one log day of the archive and the offset ranges that it covers.

Each version of a view has one Iceberg table, partitioned by log day. Each partition contains a row for each key of the
partial and one header row. The header's `covers` column contains the offset ranges, even if the day is empty. One
commit replaces rows and ranges together, so the ranges always state exactly which records the partial contains.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table as IcebergTable
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from truelog.archive.erasing.erase import forget_earlier
from truelog.archive.reader import FILE_COST
from truelog.archive.table import open_catalog
from truelog.batch.partial_selection import PartialRange, TouchedDays
from truelog.erasure import ledger
from truelog.log.positions import Positions
from truelog.storage.database import connect
from truelog.support.settings import CATALOG, Settings
from truelog.tables import kinds
from truelog.tables.table import Table

NAMESPACE = "partials"
_FINGERPRINT = "truelog.fingerprint.2"
_TRIMMED = "truelog.trimmed-before"  # older rows were dropped
_PROPERTIES = {
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
    # A bound in the metadata would be a copy of personal data that an erasure would miss.
    "write.metadata.metrics.default": "none",
    "write.metadata.metrics.column.covers": "counts",  # lets a search for headers skip files without headers
}


@dataclass(frozen=True)
class Partials:
    """The partials of a table, as of one snapshot. They lack the rows that are older than `trimmed`."""

    table: Table
    ranges: Sequence[PartialRange] = ()
    snapshot: int | None = None
    trimmed: datetime | None = None

    def read(self, spark: SparkSession, ranges: Sequence[PartialRange]) -> DataFrame | None:
        """The states of these partials, possibly several rows per key; None if there are no partials."""
        if not ranges:
            return None
        name = _name(self.table)
        spark.catalog.refreshTable(name)
        stored = spark.read.options(**FILE_COST).option("versionAsOf", str(self.snapshot)).table(name)
        days = [F.lit(each.day) for each in ranges]
        return stored.where(F.col("log_day").isin(*days) & F.col("covers").isNull()).select("row.*")


def load_partials(settings: Settings, table: Table, readings: Mapping[str, int] | None = None) -> Partials:
    """Load a table's partials that were made under these readings of its topics.

    Partials that an erasure has touched since are left out. This code must have made them.

    Raises:
        CodeChanged: other code of the same version made the table.
    """
    with open_catalog(settings) as catalog:
        try:
            stored = catalog.load_table(f"{NAMESPACE}.{table.name}")
        except NoSuchTableError:
            return Partials(table)
        _require_same_code(stored, table)
        snapshot = stored.current_snapshot()
        if snapshot is None:
            return Partials(table)
        scan = stored.scan(
            "covers IS NOT NULL", selected_fields=("log_day", "covers"), snapshot_id=snapshot.snapshot_id
        )
        headers = scan.to_arrow().to_pylist()
    ranges = [_to_range(h["log_day"], h["covers"]) for h in headers]
    touched = touched_days(settings, table)
    current = [each for each in ranges if each.readings == (readings or {}) and touched.are_in(each)]
    trimmed = stored.properties.get(_TRIMMED)
    return Partials(table, current, snapshot.snapshot_id, datetime.fromisoformat(trimmed) if trimmed else None)


def touched_days(settings: Settings, table: Table) -> TouchedDays:
    """The log days of the table's topics in which erasures cover records."""
    reach = timedelta(seconds=kinds.lookback_seconds(table) or 0)
    with connect(settings) as connection:
        days = ledger.touched_days(connection, table.view.topics)
    return TouchedDays(days, timedelta(seconds=settings.log_day_seconds), reach)


def drop_touched(settings: Settings, table: Table, *, at_once: bool = True) -> int:
    """Delete the partials that erasures have touched since they were made.

    If `at_once` is false, earlier snapshots stay until upkeep expires them, for readers that have planned on them.
    Returns the number of deleted log days. To do it again changes nothing.
    """
    touched = touched_days(settings, table)
    if not touched.days:
        return 0
    with open_catalog(settings) as catalog:
        try:
            stored = catalog.load_table(f"{NAMESPACE}.{table.name}")
        except NoSuchTableError:
            return 0
        if stored.current_snapshot() is None:
            return 0
        headers = stored.scan("covers IS NOT NULL", selected_fields=("log_day", "covers")).to_arrow().to_pylist()
        covered = [_to_range(h["log_day"], h["covers"]) for h in headers]
        days = [each.day for each in covered if not touched.are_in(each)]
        if days:
            stored.delete(" OR ".join(f"log_day = '{each.isoformat()}'" for each in days))
        if at_once:
            forget_earlier(stored)
        return len(days)


def replace(spark: SparkSession, settings: Settings, table: Table, covered: PartialRange, states: DataFrame) -> int:
    """Replace a log day's partial, even with an empty partial, and return the number of its keys."""
    _create(spark, settings, table, states.schema)
    header = spark.range(1, numPartitions=1).select(
        F.lit(None).cast(states.schema).alias("row"),
        F.lit(_to_text(covered)).alias("covers"),
    )
    counted = Observation()
    rows = states.observe(counted, F.count(F.lit(1)).alias("keys")).select(
        F.struct("*").alias("row"), F.lit(None).cast("string").alias("covers")
    )
    day = F.lit(covered.day)
    both = rows.unionByName(header).withColumn("log_day", day)
    both.writeTo(_name(table)).overwrite(F.col("log_day") == day)
    return int(counted.get["keys"])


def drop_before(spark: SparkSession, settings: Settings, table: Table, limit: datetime) -> None:
    """For a view with `keep`, drop the rows of partials that are older than `limit`; the covered ranges stay.

    The limit is stored first. A rebuild that needs older rows does not use the partials.
    """
    with open_catalog(settings) as catalog:
        if not catalog.table_exists(f"{NAMESPACE}.{table.name}"):
            return
        before = catalog.load_table(f"{NAMESPACE}.{table.name}").properties.get(_TRIMMED)
    trimmed = max(limit.astimezone(UTC).isoformat(), before or "")
    spark.sql(f"ALTER TABLE {_name(table)} SET TBLPROPERTIES ('{_TRIMMED}' = '{trimmed}')")
    expired = f"row.{table.age_column} < TIMESTAMP '{limit.astimezone(UTC):%Y-%m-%d %H:%M:%S.%f}'"
    spark.sql(f"DELETE FROM {_name(table)} WHERE covers IS NULL AND {expired}")  # noqa: S608  names are checked


def _create(spark: SparkSession, settings: Settings, table: Table, schema: StructType) -> None:
    with open_catalog(settings) as catalog:
        catalog.create_namespace_if_not_exists(NAMESPACE)
        if catalog.table_exists(f"{NAMESPACE}.{table.name}"):
            _require_same_code(catalog.load_table(f"{NAMESPACE}.{table.name}"), table)
            return
    properties = {**_PROPERTIES, _FINGERPRINT: table.fingerprint}
    listed = ", ".join(f"'{name}' = '{value}'" for name, value in properties.items())
    spark.sql(
        f"CREATE TABLE IF NOT EXISTS {_name(table)} "
        f"(row {schema.simpleString()}, covers string, log_day timestamp) "
        f"USING iceberg PARTITIONED BY (log_day) TBLPROPERTIES ({listed})"
    )


def _require_same_code(stored: IcebergTable, table: Table) -> None:
    table.require_same_code(stored.properties.get(_FINGERPRINT), "its partials were")


def _name(table: Table) -> str:
    return f"{CATALOG}.{NAMESPACE}.{table.name}"


def _to_text(covered: PartialRange) -> str:
    parts = [covered.begin.with_ids(), covered.end.with_ids(), json.dumps(covered.readings)]
    return "\n".join([*parts, json.dumps(sorted(covered.erasures)), covered.id])


def _to_range(day: datetime, covers: str) -> PartialRange:
    begin, end, readings, *more = covers.split("\n")  # an early release wrote neither erasures nor an id
    erasures, partial, *_ = [*more, *("[]", "")[len(more) :]]
    spans = Positions.from_text(begin), Positions.from_text(end)
    return PartialRange(day, *spans, json.loads(readings), frozenset(json.loads(erasures)), partial)
