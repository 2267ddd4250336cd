"""Base: the rows that a comparison found equal, so that a later comparison only reads the records since then.

A base contains a view's states at the positions of a certificate, in an Iceberg table with one partition for each slice
of the keys. A slice is a day of the key's time, or a part of the key's hash if the key has no time. To rebuild the view
at later positions, only the slices are read that records since then have changed. The hash of all other rows is known
from the certificate.

Only rebuilt rows are written to a base, never streamed rows. The database has a hash of each slice, which is checked
whenever the slice is read. All operations require the lock on the view's comparisons.
"""

import json
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from truelog.archive.erasing.drop_table import drop_table
from truelog.archive.reader import FILE_COST
from truelog.archive.table import open_catalog
from truelog.batch.rebuild import Rebuilder
from truelog.kernel import clock
from truelog.log.positions import Positions
from truelog.spark.cache import cached
from truelog.storage.database import Connection
from truelog.support.errors import BaseAltered
from truelog.support.settings import CATALOG, Settings
from truelog.support.timestamps import EARLIEST, LATEST
from truelog.tables import table_hash
from truelog.tables.compiled_view import CompiledView
from truelog.tables.table import Table
from truelog.tables.table_hash import NO_ROWS, BucketHash, TableHash

NAMESPACE = "bases"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST, _LAST = ((each - _EPOCH) // timedelta(microseconds=1) for each in (EARLIEST, LATEST))
_SLICES = 1024  # days that are so far apart share a slice
DAY = timedelta(days=1) // timedelta(microseconds=1)  # the key times of a slice
WORTH_WRITING = 0.5  # the largest share of a base's rows that a comparison writes again
_PROPERTIES = {
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
    "write.metadata.metrics.default": "none",  # a bound in the metadata would be a copy of personal data
}


@dataclass(frozen=True)
class Slice:
    """The hash of a slice's rows, and the oldest time that decides when one of them expires under `keep`."""

    hash: BucketHash
    oldest: datetime | None = None

    def as_data(self) -> list[object]:
        return [self.hash.rows, self.hash.hash, self.oldest and self.oldest.isoformat()]

    @staticmethod
    def of(rows: int, text: str, oldest: str | None) -> "Slice":
        return Slice(BucketHash.parse(rows, text), datetime.fromisoformat(oldest) if oldest else None)


Slices = Mapping[int, Slice]


@dataclass(frozen=True)
class Base:
    """A base as `truelog.base` describes it: its rows are in a snapshot of the view's table of bases.

    `begun_at` is when a comparison last read the partials and records of all its rows. `proved_at` is when the oldest
    of these partials was last compared with raw bytes; None if one of them never was.
    """

    certificate: str
    snapshot: int
    slices: Slices
    begun_at: datetime
    proved_at: datetime | None

    @property
    def rows(self) -> int:
        return sum(each.hash.rows for each in self.slices.values())


@dataclass(frozen=True)
class Rebuilt:
    """A hashed rebuild. `slices` is None if it makes no base; `changed` has the rows of slices to be written."""

    tables: Mapping[str, TableHash]  # by the name of the side table; "" for the view's own
    slices: Slices | None = None
    snapshot: int | None = None  # of the rows, if they are written already
    base: Base | None = None  # from which the rebuild began
    changed: DataFrame | None = None
    cache: ExitStack = field(default_factory=ExitStack)  # close it when the rows are no longer needed

    @property
    def own(self) -> TableHash:
        """The hash of the table that readers query."""
        return self.tables[""]


def load(connection: Connection, compiled: CompiledView) -> Base | None:
    """The view's base, if there is one."""
    row = connection.execute(
        "SELECT certificate, snapshot, slices, begun_at, proved_at FROM truelog.base WHERE (view, version) = (%s, %s)",
        (compiled.name, compiled.view.version),
    ).fetchone()
    if row is None:
        return None
    certificate, snapshot, slices, begun_at, proved_at = row
    assert isinstance(slices, dict) and isinstance(begun_at, datetime)  # noqa: S101, PT018
    assert proved_at is None or isinstance(proved_at, datetime)  # noqa: S101
    parts = {int(number): Slice.of(*each) for number, each in slices.items()}
    return Base(str(certificate), int(str(snapshot)), parts, begun_at, proved_at)


def forget(connection: Connection, compiled: CompiledView) -> None:
    """Make the next comparison read everything. Required before the table of bases changes."""
    connection.execute(
        "DELETE FROM truelog.base WHERE (view, version) = (%s, %s)", (compiled.name, compiled.view.version)
    )


def drop(connection: Connection, settings: Settings, compiled: CompiledView) -> None:
    """Delete the view's base with all its objects, because an erasure covers records in it. To do it again is safe."""
    forget(connection, compiled)
    drop_table(settings, connection, f"{NAMESPACE}.{compiled.own.name}")


def keep(rebuilder: Rebuilder, rebuilt: Rebuilt, certificate: str, proved_at: datetime | None) -> None:
    """Make a rebuild, which the certificate describes, the view's base."""
    compiled, base = rebuilder.compiled, rebuilt.base
    if rebuilt.slices is None or (base is not None and not _is_worth_writing(rebuilt, base)):
        return
    snapshot, begun_at = rebuilt.snapshot, datetime.now(UTC)
    if base is not None:
        snapshot, begun_at, proved_at = _write_changed(rebuilder, rebuilt, base), base.begun_at, base.proved_at
    slices = {str(number): each.as_data() for number, each in rebuilt.slices.items()}
    rebuilder.connection.execute(
        "INSERT INTO truelog.base (view, version, certificate, snapshot, slices, begun_at, proved_at) "
        "VALUES (%s, %s, %s, %s, %s, %s, %s) ON CONFLICT (view, version) DO UPDATE SET "
        "(certificate, snapshot, slices) = (excluded.certificate, excluded.snapshot, excluded.slices)",
        (compiled.name, compiled.view.version, certificate, snapshot, json.dumps(slices), begun_at, proved_at),
    )


def write(rebuilder: Rebuilder, states: DataFrame) -> Rebuilt:
    """Write all states of a view as a base, and hash them as they were written. `keep` makes it the view's base."""
    spark, settings, table = rebuilder.context.spark, rebuilder.context.settings, rebuilder.compiled.own
    forget(rebuilder.connection, rebuilder.compiled)
    with open_catalog(settings) as catalog:
        catalog.create_namespace_if_not_exists(NAMESPACE)
    writer = _in_slices(table, states).writeTo(_name(table)).using("iceberg").partitionedBy(F.col("slice"))
    for name, value in _PROPERTIES.items():
        writer = writer.tableProperty(name, value)
    writer.createOrReplace()
    snapshot = _snapshot(settings, table)
    hashes, slices = _hashed(table, _read(spark, table, snapshot).select("row.*"))
    return Rebuilt({"": hashes}, slices=slices, snapshot=snapshot)


def advance(rebuilder: Rebuilder, base: Base, certified: TableHash, begin: Positions, end: Positions) -> Rebuilt:
    """Rebuild the view at `end` from its base, which has these hashes at `begin`.

    Raises:
        BaseAltered: the base does not have the rows that were written.
    """
    table = rebuilder.compiled.own
    if table_hash.sum_of(certified.values()) != table_hash.sum_of(each.hash for each in base.slices.values()):
        raise BaseAltered(f"the slices of {table.owner}'s base do not add up to certificate {base.certificate}")
    limit = rebuilder.cutoff(table, end)
    with ExitStack() as cache:
        since = cached(cache, rebuilder.states_between(table, begin, end))
        numbers = {row.slice for row in _in_slices(table, since).select("slice").distinct().collect()}
        numbers |= {n for n, each in base.slices.items() if limit and each.oldest and each.oldest < limit}
        rows = _read(rebuilder.context.spark, table, base.snapshot).where(F.col("slice").isin(*numbers))
        old = cached(cache, rows.select("row.*"))
        before, found = _hashed(table, old)
        if altered := [n for n in sorted(numbers) if _hash_of(found, n) != _hash_of(base.slices, n)]:
            raise BaseAltered(f"slices {altered} of {table.owner}'s base are not as they were written")
        changed = cached(cache, clock.rows_since(table, table.plus(old.unionByName(since)), limit))
        after, new = _hashed(table, changed)
        slices = {n: each for n, each in base.slices.items() if n not in numbers} | dict(new)
        hashes = table_hash.replaced(certified, before, after)
        return Rebuilt({"": hashes}, slices=slices, base=base, changed=changed, cache=cache.pop_all())


def _is_worth_writing(rebuilt: Rebuilt, base: Base) -> bool:
    numbers = _changed(rebuilt, base)
    return sum(_hash_of(base.slices, n).rows for n in numbers) <= WORTH_WRITING * base.rows


def _changed(rebuilt: Rebuilt, base: Base) -> list[int]:
    assert rebuilt.slices is not None  # noqa: S101
    return [n for n in rebuilt.slices.keys() | base.slices.keys() if rebuilt.slices.get(n) != base.slices.get(n)]


def _write_changed(rebuilder: Rebuilder, rebuilt: Rebuilt, base: Base) -> int:
    """Replace the slices that have changed, and return the new snapshot."""
    table, numbers = rebuilder.compiled.own, _changed(rebuilt, base)
    if not numbers:
        return base.snapshot
    assert rebuilt.changed is not None  # noqa: S101
    forget(rebuilder.connection, rebuilder.compiled)
    chosen = F.col("slice").isin(*numbers)
    _in_slices(table, rebuilt.changed).where(chosen).writeTo(_name(table)).overwrite(chosen)
    return _snapshot(rebuilder.context.settings, table)


def _in_slices(table: Table, states: DataFrame) -> DataFrame:
    return states.select(F.struct("*").alias("row"), slice_of(table, states).alias("slice"))


def slice_of(table: Table, rows: DataFrame) -> Column:
    """The slice of a row as a Spark column."""
    for name, kind in table.key_columns.items():
        if kind in ("timestamptz", "date"):
            days = F.unix_date(name) if kind == "date" else F.floor(F.unix_micros(name) / F.lit(DAY))
            return F.coalesce(F.pmod(days, F.lit(_SLICES)), F.lit(0)).cast("int")
    return table_hash.bucket(table, rows)


def _hashed(table: Table, states: DataFrame) -> tuple[TableHash, Slices]:
    """The hash of all rows, and each slice."""
    stored = table.stored(states)
    number = slice_of(table, stored)
    parts = table_hash.hash_parts(table, stored, number)
    oldest: dict[int, datetime] = {}
    if table.age_column:
        ages = (
            stored.groupBy(number.alias("slice")).agg(F.min(F.unix_micros(table.age_column)).alias("oldest")).collect()
        )
        oldest = {row.slice: _clamped(row.oldest) for row in ages if row.oldest is not None}
    slices = {n: Slice(table_hash.sum_of(part.values()), oldest.get(n)) for n, part in parts.items()}
    return table_hash.total(parts.values()), slices


def _clamped(micros: int) -> datetime:
    """A time, or the nearest time that Python has: PostgreSQL has earlier and later times."""
    return _EPOCH + timedelta(microseconds=min(max(micros, _FIRST), _LAST))


def _hash_of(slices: Slices, number: int) -> BucketHash:
    return slices[number].hash if number in slices else NO_ROWS


def _read(spark: SparkSession, table: Table, snapshot: int) -> DataFrame:
    spark.catalog.refreshTable(_name(table))
    return spark.read.options(**FILE_COST).option("versionAsOf", str(snapshot)).table(_name(table))


def _snapshot(settings: Settings, table: Table) -> int:
    with open_catalog(settings) as catalog:
        snapshot = catalog.load_table(f"{NAMESPACE}.{table.name}").current_snapshot()
    assert snapshot is not None  # noqa: S101
    return snapshot.snapshot_id


def _name(table: Table) -> str:
    return f"{CATALOG}.{NAMESPACE}.{table.name}"
