"""The pointer in the bucket: one object per archive table with the location of the table's newest metadata.

The catalog is in PostgreSQL, which may be restored from a backup. The bucket cannot be restored by accident, so the
pointer shows that a catalog is too old. A pointer only moves forward:

1. Whoever moves it has an advisory lock in PostgreSQL, so two processes never move one pointer at the same time.
2. It reads the pointer first and then the catalog. It moves the pointer only to metadata that descends from the
   pointer's metadata, which an Iceberg table records in its metadata log.
3. The write is conditional (`If-Match`). A process that was suspended and lost its lock therefore does not overwrite a
   newer pointer.

A crash before the write leaves a pointer that is a few commits old. The next start or commit moves it.
"""

import json
import logging
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar, cast

from botocore.exceptions import ClientError
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from sqlalchemy import text
from sqlalchemy.engine import Connection as SqlConnection
from sqlalchemy.exc import SQLAlchemyError

from truelog.storage import bucket
from truelog.storage.database import Connection
from truelog.storage.locks import Locks
from truelog.support.errors import CatalogBehind, ServiceDown
from truelog.support.settings import CATALOG

PREFIX = "_catalog/"
TOPIC_ID = "truelog.topic-id"  # the table property with the id of the archived topic

_CHANGED = frozenset({"PreconditionFailed", "ConditionalRequestConflict", "412", "409"})
_UNCONDITIONAL = frozenset({"NotImplemented", "501"})  # an object store without conditional writes
_ATTEMPTS = 5
_LONGEST_KEPT = 300.0  # seconds, after which a lost metadata file is noticed although the catalog has not changed
_LOCATIONS = """
    SELECT table_namespace || '.' || table_name, metadata_location FROM iceberg.iceberg_tables
    WHERE catalog_name = %s AND table_namespace || '.' || table_name = ANY(%s) AND metadata_location IS NOT NULL
"""
_LOCATED = """
    SELECT table_namespace || '.' || table_name, metadata_location FROM iceberg.iceberg_tables
    WHERE catalog_name = %s AND starts_with(metadata_location, %s) ORDER BY 1
"""

Read = TypeVar("Read")

log = logging.getLogger("truelog.archive")


@dataclass(frozen=True)
class Pointer:
    """The stored pointer of one table, and the object's ETag."""

    uuid: str
    location: str
    topic_id: str | None  # None in a pointer that an earlier release wrote
    etag: str


def read_pointer(properties: Mapping[str, str], bucket_name: str, table: str) -> Pointer | None:
    """The table's pointer; None if the table was never committed to. `properties` are the catalog's S3 properties."""
    try:
        found = bucket.client_of(properties).get_object(Bucket=bucket_name, Key=f"{PREFIX}{table}.json")
    except ClientError as error:
        if error.response["Error"]["Code"] in ("NoSuchKey", "404"):
            return None
        raise
    stored = json.loads(found["Body"].read())
    return Pointer(stored["uuid"], stored["metadata_location"], stored.get("topic_id"), found["ETag"])


def advance_pointer(table: Table) -> None:
    """Move the table's pointer to the metadata that the catalog names now.

    Raises:
        CatalogBehind: that metadata does not descend from the metadata that the pointer names.
    """
    name = ".".join(table.name())
    with _locked(table, name):
        for _ in range(_ATTEMPTS):
            stored = _stored(table)
            _refresh(table)  # after the pointer was read: see `load_newest`
            if stored is not None and (stored.location, stored.topic_id) == _target(table):
                return
            _require_descendant(table, stored)
            if _write(table, name, stored):
                return
    raise ServiceDown(f"{name}: its pointer in the bucket changed {_ATTEMPTS} times while it was being written")


def load_newest(catalog: Catalog, name: str, topic_id: str = "") -> Table:
    """The table, for whatever changes it or reads its records: what was erased is not in it.

    A catalog that was restored from a backup is refused, because it lacks what was committed or erased since then. The
    pointer is read before the catalog, so a commit in between only makes the catalog newer.

    Raises:
        CatalogBehind: the pointer names metadata that is not in the table's history, or a lost table of this topic.
        NoSuchTableError: nothing of this topic was ever archived.
    """
    stored = read_pointer(catalog.properties, catalog.properties["warehouse"].split("/")[2], name)
    try:
        table = load_table(catalog, name)
    except NoSuchTableError:
        if stored is not None and stored.topic_id in (None, topic_id):
            raise _behind(name, "has no such table", stored.location) from None
        raise
    _require_descendant(table, stored)
    return table


def load_table(catalog: Catalog, name: str) -> Table:
    """The table as the catalog knows it, which may be an earlier version: only for what shows no records.

    Raises:
        CatalogBehind: the catalog names metadata that the table's later commits have deleted.
    """
    try:
        return catalog.load_table(name)
    except FileNotFoundError as missing:
        raise _behind(name, "names metadata that was deleted", "newer metadata") from missing


def metadata_locations(connection: Connection, tables: Iterable[str]) -> dict[str, str]:
    """The metadata that the catalog names now for each of these tables, as far as they exist; in one query."""
    found = connection.execute(_LOCATIONS, (CATALOG, list(tables))).fetchall()
    return {str(table): str(location) for table, location in found}


def located_in(connection: Connection, folder: str) -> dict[str, str]:
    """The metadata that the catalog names now for each table whose folder is in this one, whatever the table's name."""
    found = connection.execute(_LOCATED, (CATALOG, folder)).fetchall()
    return {str(table): str(location) for table, location in found}


class Unchanged(Generic[Read]):
    """What was read from tables, by name, for a process that looks again and again.

    A metadata file never changes, so what was read from a table is true while the catalog names the same file. Only
    what was read last is kept, so a catalog that names earlier metadata, as after a restore, has changed, too. After
    some minutes the table is read again in any case, because the object store may have lost the file.
    """

    def __init__(self) -> None:
        self._kept: dict[str, tuple[str, float, Read]] = {}

    def get(self, table: str, location: str) -> Read | None:
        """What was read from this metadata of the table lately, or None."""
        kept, since, read = self._kept.get(table, ("", 0.0, None))
        return read if kept == location and time.monotonic() - since < _LONGEST_KEPT else None

    def keep(self, table: str, location: str, read: Read) -> None:
        self._kept[table] = (location, time.monotonic(), read)


def _refresh(table: Table) -> None:
    name = ".".join(table.name())
    try:
        table.refresh()
    except FileNotFoundError as missing:
        raise _behind(name, "names metadata that was deleted", "newer metadata") from missing


def _behind(name: str, catalog: str, stored: str) -> CatalogBehind:
    """The error about a table whose catalog entry is older than the bucket."""
    return CatalogBehind(
        f"{name}: the catalog {catalog}, but the bucket has {stored}. Was the database restored from a backup? "
        "Nothing was changed. Stop the archive, run `truelog archive adopt`, and start the archive again."
    )


def version(location: str) -> int:
    """The number that each commit increases by 1; it is the beginning of the metadata file's name."""
    match = re.match(r"(\d+)-", location.rpartition("/")[2])
    return int(match.group(1)) if match else -1


def history(location: str, metadata: TableMetadata) -> set[str]:
    """The metadata files that this metadata descends from, and the metadata file itself."""
    return {location, *(each.metadata_file for each in metadata.metadata_log)}


def _require_descendant(table: Table, stored: Pointer | None) -> None:
    if stored is None or stored.location in history(table.metadata_location, table.metadata):
        return
    other_table = stored.uuid != str(table.metadata.table_uuid)
    if other_table and stored.topic_id != table.properties.get(TOPIC_ID):  # the topic was re-created
        return
    older = version(stored.location) < version(table.metadata_location)
    if not other_table and older and not table.io.new_input(stored.location).exists():
        return  # so old that the table's own commits have deleted it
    raise _behind(".".join(table.name()), f"names {table.metadata_location}", stored.location)


@contextmanager
def turn(catalog: Catalog, name: str, *, alone: bool) -> Iterator[None]:
    """Commit to the table while an erasure that was overtaken does not, or `alone`, while no append does.

    Iceberg decides which commit is right. The turn only lets an erasure commit that appends have overtaken, so
    losing the session meanwhile does not fail the commit.
    """
    lock = f"pg_advisory_xact_lock{'' if alone else '_shared'}({Locks.ARCHIVE_TURN.of(':name')})"
    connection = cast(SqlCatalog, catalog).engine.connect()
    try:
        connection.execute(text("SET LOCAL idle_in_transaction_session_timeout = '1min'"))  # for a slow object store
        connection.execute(text(f"SELECT {lock}"), {"name": name})
        yield
    finally:
        _end(connection)


def _end(connection: SqlConnection) -> None:
    """End the transaction and its lock. Both have ended already if the session was lost."""
    try:
        connection.close()
    except SQLAlchemyError as lost:
        log.info("the session of the turn was lost: %s", lost)


@contextmanager
def _locked(table: Table, name: str) -> Iterator[None]:
    """Exclude other processes that move this pointer. The lock ends with the transaction, even in a crash."""
    with cast(SqlCatalog, table.catalog).engine.begin() as connection:
        connection.execute(text(f"SELECT pg_advisory_xact_lock({Locks.ARCHIVE_TABLE.of(':name')})"), {"name": name})
        yield


def _stored(table: Table) -> Pointer | None:
    return read_pointer(table.io.properties, _bucket_of(table), ".".join(table.name()))


def _bucket_of(table: Table) -> str:
    return table.location().split("/")[2]


def _target(table: Table) -> tuple[str, str | None]:
    return table.metadata_location, table.properties.get(TOPIC_ID)


def _write(table: Table, name: str, replaces: Pointer | None) -> bool:
    """Write the pointer; False if it is no longer the pointer that this write should replace."""
    location, topic_id = _target(table)
    content = {
        "table": name,
        "uuid": str(table.metadata.table_uuid),
        "metadata_location": location,
        "topic_id": topic_id,
    }
    client, body = bucket.client_of(table.io.properties), json.dumps(content).encode()
    place, key = _bucket_of(table), f"{PREFIX}{name}.json"
    try:
        if replaces is None:
            client.put_object(Bucket=place, Key=key, Body=body, IfNoneMatch="*")
        else:
            client.put_object(Bucket=place, Key=key, Body=body, IfMatch=replaces.etag)
    except ClientError as error:
        code = error.response["Error"]["Code"]
        if code in _CHANGED:
            return False
        if code not in _UNCONDITIONAL:
            raise
        client.put_object(Bucket=place, Key=key, Body=body)  # the lock alone excludes other writers
    return True
