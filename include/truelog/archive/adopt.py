"""`truelog archive adopt`: points a catalog that was restored from a backup at the newest tables in the bucket.

For each table:

1. List the metadata files in the bucket. The candidates are the metadata that the pointer names and all metadata that
   descends from it. Any other file is an older version, or a leftover of a commit that was refused.
2. Prove the newest candidate: all its files are in the bucket with the right size, contain as many records as were
   committed, are within the archived ranges and do not overlap. If the proof fails, try the next candidate.
3. Point the catalog at the proved metadata in one compare-and-set.
4. Record the log days that the files prove and the database lacks.

`adopt_event_versions` does the same for the registry of event types, whose copy in the bucket is never older.

A crash between a commit's metadata file and the catalog leaves a candidate that was never committed. If its proof
succeeds, the candidate contains each record up to its positions exactly once, so adopting it completes that commit.
"""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, cast

from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.catalog.sql import IcebergTables, SqlCatalog
from pyiceberg.table import StaticTable, Table
from sqlalchemy import delete, select, update

from truelog.archive import log_day
from truelog.archive.audit_evidence import file_faults, unreadable_files
from truelog.archive.catalog_pointer import PREFIX, Pointer, advance_pointer, history, read_pointer, version
from truelog.archive.log_day import Start
from truelog.archive.table import NAMESPACE, Progress, open_catalog
from truelog.control import event_registry, lease
from truelog.control.application import ARCHIVE
from truelog.control.lease import Holder
from truelog.measures.registry import sql_functions
from truelog.storage import bucket
from truelog.storage.database import connect
from truelog.storage.migration import migrate
from truelog.support.errors import ArchiveCorrupt, Stale
from truelog.support.settings import Settings


@dataclass(frozen=True)
class Adoption:
    """The result for one table. `before` is the catalog's metadata, or None if the catalog had no such table."""

    table: str
    before: str | None
    newest: str | None  # None if no version of a derived table is complete: it is left out, and recompute makes it
    rejected: tuple[str, ...]  # newer metadata whose proof failed, with the reason
    log_days: int  # starts of log days that the database lacked

    @property
    def changed(self) -> bool:
        return self.before != self.newest

    def as_dict(self) -> dict[str, Any]:
        """The stable format for scripts."""
        return asdict(self) | {"changed": self.changed}


def adopt_newest(
    settings: Settings, only: str | None, report: Callable[[Adoption], None], *, dry_run: bool = False
) -> list[Adoption]:
    """Adopt each table, or only one table such as `log.page_view`, and report each table when it is done.

    Raises:
        Fenced: the archive application is running.
        ArchiveCorrupt: files of a table's newest version are missing from the bucket.
    """
    migrate(settings, sql_functions())  # the restored database may lack everything
    with connect(settings) as connection:
        connection.execute("CREATE SCHEMA IF NOT EXISTS iceberg")
    archive_lease, done = lease.take_lease(settings, ARCHIVE, code=lease.COMMAND), list[Adoption]()
    try:
        with open_catalog(settings) as catalog:
            store = _Store(settings, cast(SqlCatalog, catalog))
            for name in store.names:
                if only in (None, name):
                    done.append(_adopt(store, name, None if dry_run else archive_lease.holder))
                    report(done[-1])
    finally:
        archive_lease.release()
    return done


def adopt_event_versions(settings: Settings, *, dry_run: bool = False) -> list[str]:
    """Add the event versions and readings that only the bucket contains, and return the event types that lacked some.

    Raises:
        RegistryBehind: the database and the bucket have different versions of an event type.
    """
    migrate(settings, sql_functions())
    return event_registry.restore(settings, dry_run=dry_run)


@dataclass(frozen=True)
class _Store:
    """The tables in the bucket and in the catalog."""

    settings: Settings
    catalog: SqlCatalog

    @cached_property
    def folders(self) -> dict[str, list[str]]:
        """The metadata files in each table's metadata folder."""
        found: dict[str, list[str]] = {}
        for address in bucket.object_sizes(self.settings, f"{self._root}/"):
            if address.endswith(".metadata.json"):
                found.setdefault(address.rpartition("/")[0], []).append(address)
        return found

    @property
    def names(self) -> list[str]:
        """Every table that has a pointer, an entry in the catalog, or a folder that no pointer refers to."""
        addresses = bucket.object_sizes(self.settings, f"s3://{self.settings.s3_bucket}/{PREFIX}")
        pointed = {each.rpartition("/")[2].removesuffix(".json") for each in addresses}
        return sorted(pointed | set(self.rows) | {self._named(folder) for folder in self.folders})

    @cached_property
    def rows(self) -> dict[str, str | None]:
        """The metadata location of each table in the catalog."""
        columns = IcebergTables.table_namespace, IcebergTables.table_name, IcebergTables.metadata_location
        query = select(*columns).where(IcebergTables.catalog_name == self.catalog.name)
        with self.catalog.engine.connect() as connection:
            return {f"{namespace}.{name}": location for namespace, name, location in connection.execute(query)}

    def pointer(self, name: str) -> Pointer | None:
        return read_pointer(self.catalog.properties, self.settings.s3_bucket, name)

    def versions(self, name: str, base: str | None) -> list[Table]:
        """The table's versions, newest first: in the folder of `base`, or in each folder with the table's name."""
        folders = [base.rpartition("/")[0]] if base else [f for f in self.folders if self._named(f) == name]
        found = [self._load(name, each) for folder in folders for each in self.folders.get(folder, [])]
        newest = max(found, key=lambda each: each.metadata.last_updated_ms, default=None)
        same = [t for t in found if newest and t.metadata.table_uuid == newest.metadata.table_uuid]
        return sorted(same, key=lambda t: (version(t.metadata_location), t.metadata.last_updated_ms), reverse=True)

    @property
    def _root(self) -> str:
        return self.settings.warehouse.rstrip("/")

    def _named(self, folder: str) -> str:
        """The table's name. A topic's folder is `log/<topic>-<topic id>`, and was `log/<topic>` in earlier releases."""
        namespace, table, *_ = folder.removeprefix(f"{self._root}/").split("/")
        return f"{namespace}.{table.partition('-')[0]}"

    def _load(self, name: str, location: str) -> Table:
        found = StaticTable.from_metadata(location, self.settings.iceberg())
        return Table(tuple(name.split(".")), found.metadata, location, found.io, NoopCatalog(name))


def _adopt(store: _Store, name: str, holder: Holder | None) -> Adoption:
    """Adopt one table; without a holder, only report what would change."""
    before, stored = store.rows.get(name), store.pointer(name)
    base = stored.location if stored else before
    newest, rejected = _newest(store, name, base)
    damaged = newest is None or any(each.startswith(f"{before}:") for each in rejected)
    if damaged and name.startswith(f"{NAMESPACE}."):
        raise ArchiveCorrupt(
            f"{name}: no version in the bucket is complete. {' '.join(rejected)} Restore the bucket's files from their "
            "backup, and run `truelog archive adopt` again. The catalog was not changed."
        )
    location = newest.metadata_location if newest else None
    if holder is not None and location != before:
        _point(store.catalog, name, before, location)
    days = 0
    if newest is not None and name.startswith(f"{NAMESPACE}."):
        days = _record_days(store.settings, newest, holder)
        if holder is not None:
            advance_pointer(store.catalog.load_table(name))
    return Adoption(name, before, location, tuple(rejected), days)


def _newest(store: _Store, name: str, base: str | None) -> tuple[Table | None, list[str]]:
    """The newest complete version that is or descends from `base`, and why newer versions are not complete."""
    versions, rejected = store.versions(name, base), list[str]()
    for each in _descendants(versions, base):
        faults = _faults(store.settings, each)
        if not faults:
            return each, rejected
        rejected.append(f"{each.metadata_location}: {faults[0]} ({len(faults)} faults).")
    return None, rejected


def _descendants(versions: list[Table], base: str | None) -> list[Table]:
    """The versions that are or descend from `base`, newest first; all versions if the metadata of `base` is missing."""
    if base not in {each.metadata_location for each in versions}:
        return versions
    found = {base}
    for each in reversed(versions):
        if history(each.metadata_location, each.metadata) & found:
            found.add(each.metadata_location)
    return [each for each in versions if each.metadata_location in found]


def _faults(settings: Settings, table: Table) -> list[str]:
    listed = bucket.object_sizes(settings, f"{table.location()}/data/")
    return file_faults(table, listed) if table.name()[0] == NAMESPACE else unreadable_files(table, listed)


def _point(catalog: SqlCatalog, name: str, before: str | None, location: str | None) -> None:
    """Change the catalog's entry in one step, if it still is `before`."""
    namespace, table = name.split(".")
    if before is None and location is not None:
        catalog.create_namespace_if_not_exists(namespace)
        catalog.register_table(name, location)
        return
    entry = (
        IcebergTables.catalog_name == catalog.name,
        IcebergTables.table_namespace == namespace,
        IcebergTables.table_name == table,
        IcebergTables.metadata_location == before,
    )
    values = {"metadata_location": location, "previous_metadata_location": before}
    with catalog.engine.begin() as connection:
        statement = (
            update(IcebergTables).where(*entry).values(values) if location else delete(IcebergTables).where(*entry)
        )
        if connection.execute(statement).rowcount != 1:
            raise Stale(f"{name}: the catalog changed during the adoption. Run `truelog archive adopt` again.")


def _record_days(settings: Settings, table: Table, holder: Holder | None) -> int:
    """Record the starts of log days that the table's files prove and the database lacks, and return their number."""
    topic, topic_id = table.name()[-1], Progress.of(table.metadata).topic_id
    proved: dict[tuple[int, int], int] = {}
    for partition, day, first in _first_offsets(table):
        proved[partition, day] = min(first, proved.get((partition, day), first))
    with connect(settings) as connection:
        known = log_day.load_days(connection, {topic: topic_id})
        recorded = {(p, each.day) for (_, p), starts in known.by_partition.items() for each in starts}
        missing = [(topic, p, Start(day, first)) for (p, day), first in proved.items() if (p, day) not in recorded]
        if holder is not None:
            log_day.record_days(connection, holder, {topic: topic_id}, missing)
    return len(missing)


def _first_offsets(table: Table) -> Iterator[tuple[int, int, int]]:
    """The partition, the log day and the first offset of each live file."""
    offset = table.schema().find_field("offset").field_id
    for task in table.scan().plan_files():
        micros, partition = task.file.partition[0], task.file.partition[1]
        yield (
            int(partition),
            int(micros) // 1_000_000,
            int.from_bytes(task.file.lower_bounds[offset], "little", signed=True),
        )
