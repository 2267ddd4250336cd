"""The archive's tables: one Iceberg table per topic, named after the topic, with every record of the topic.

A row contains a record's coordinates, broker time and raw bytes, and the columns that the event type declares, which
are decoded once. The archive's positions are a table property, set in the same transaction that appends the rows, so
neither compaction nor snapshot expiry can lose the positions.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from sqlalchemy.exc import SQLAlchemyError

from truelog.archive.catalog_pointer import (
    TOPIC_ID,
    Unchanged,
    advance_pointer,
    load_newest,
    load_table,
    located_in,
    metadata_locations,
)
from truelog.archive.schema import arrow_schema
from truelog.control import event_registry
from truelog.log.leader_epochs import Epochs
from truelog.log.positions import Positions
from truelog.log.topics import PartitionKey
from truelog.schema.event import EventType
from truelog.storage import db_snapshot
from truelog.storage.database import connect
from truelog.support.errors import CatalogBehind, FilesDeleted, ServiceDown, TopicRecreated
from truelog.support.settings import CATALOG, Settings

NAMESPACE = "log"

POSITIONS = "truelog.positions"  # next offset to archive, by partition
RECORDS = "truelog.records"  # records archived so far, by partition: distinguishes a lost file from a hole in the log
BEGAN = "truelog.began"  # offset where archiving began, by partition: earlier missing records are not a hole
EPOCHS = "truelog.leader-epochs"  # the leader epoch in which the position was reached, by partition
LOST = "truelog.lost"  # accepted losses: ranges that the log dropped before they were archived, by partition
ERASED = "truelog.erased"  # how many archived records were erased, by partition; only erasures set it
# By reading of the event type: the first offset of each partition whose typed columns were decoded under that reading.
READINGS = "truelog.readings"

_PROPERTIES = {
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
    "commit.retry.num-retries": "20",  # a compaction may conflict with several attempts
    "commit.manifest-merge.enabled": "true",  # otherwise each commit adds a manifest, which each reader opens
    # Column bounds in the metadata would copy personal data to a place that erasure does not reach.
    "write.metadata.metrics.default": "none",
    "write.metadata.metrics.column.partition": "full",
    "write.metadata.metrics.column.offset": "full",
    "write.metadata.metrics.column.broker_time": "full",
    "write.metadata.metrics.column.log_day": "full",
}

Offsets = dict[int, int]
Ranges = dict[int, list[tuple[int, int]]]


@dataclass(frozen=True)
class Progress:
    """The state of one topic's archive, from the table properties."""

    topic_id: str
    positions: Offsets
    records: Offsets
    began: Offsets
    lost: Ranges = field(default_factory=dict)
    readings: dict[int, Offsets] = field(default_factory=dict)  # empty in a table from an earlier release
    epochs: Offsets = field(default_factory=dict, compare=False)  # empty if an earlier release archived

    @staticmethod
    def of(metadata: TableMetadata) -> "Progress":
        found = metadata.properties
        positions, records, began = (_load(found[name]) for name in (POSITIONS, RECORDS, BEGAN))
        lost = {p: [(a, b) for a, b in ranges] for p, ranges in _load(found[LOST]).items()}
        readings = {r: {int(p): o for p, o in by.items()} for r, by in _load(found.get(READINGS, "{}")).items()}
        epochs = _load(found.get(EPOCHS, "{}"))
        return Progress(found[TOPIC_ID], positions, records, began, lost, readings, epochs)

    def as_properties(self) -> dict[str, str]:
        return {
            TOPIC_ID: self.topic_id,
            POSITIONS: _dump(self.positions),
            RECORDS: _dump(self.records),
            BEGAN: _dump(self.began),
            LOST: _dump(self.lost),
            READINGS: _dump(self.readings),
            EPOCHS: _dump(self.epochs),
        }


def erased_counts(table: Table) -> Offsets:
    """How many records were erased in each partition. Archive commits, which may be retried, do not carry it."""
    return _load(table.properties.get(ERASED, "{}"))


def ever_live(table: Table) -> set[str]:
    """The files of every retained snapshot: a compacted file is not an orphan until its snapshot expires."""
    # pyiceberg's own list of all files reads a manifest once for each of its snapshots.
    manifests = {each.manifest_path: each for snapshot in table.snapshots() for each in snapshot.manifests(table.io)}
    entries = (entry for each in manifests.values() for entry in each.fetch_manifest_entry(table.io))
    return {entry.data_file.file_path for entry in entries}


def open_catalog(settings: Settings) -> Catalog:
    return load_catalog(CATALOG, **settings.iceberg())


def identifier(topic: str) -> str:
    return f"{NAMESPACE}.{topic}"


def tables_of_topics(settings: Settings) -> dict[str, list[str]]:
    """All tables of the archive, by topic. One that an operator has renamed keeps records of a topic created again.

    A renamed table keeps its folder, whose name begins with that of the topic.
    """
    root, found = f"{settings.warehouse.rstrip('/')}/{NAMESPACE}/", dict[str, list[str]]()
    with connect(settings) as connection:
        for name, location in located_in(connection, root).items():
            topic = location.removeprefix(root).partition("/")[0].partition("-")[0]
            found.setdefault(topic, []).append(name)
    return found


def ensure_table(catalog: Catalog, event_type: EventType, topic_id: str, began: Mapping[int, int]) -> Table:
    """A topic's table, created if missing and extended by the columns that the event type has gained.

    Raises:
        CatalogBehind: the bucket has a newer version of the table than the catalog.
        TopicRecreated: the table contains another topic with this name.
    """
    try:
        table = load_newest(catalog, identifier(event_type.name), topic_id)
    except NoSuchTableError:
        return _create(
            catalog, event_type, Progress(topic_id, dict(began), {}, dict(began), readings={event_type.reading: {}})
        )
    require_same_topic(table, topic_id)
    with table.update_schema() as update:
        update.union_by_name(arrow_schema(event_type))
    if missing := {name: value for name, value in _PROPERTIES.items() if name not in table.properties}:
        with table.transaction() as change:  # an earlier release made the table
            change.set_properties(missing)
    advance_pointer(table)
    return table


def require_same_topic(table: Table, topic_id: str) -> None:
    """Refuse a recreated topic: its offsets identify other records and must not continue the old offsets."""
    archived = Progress.of(table.metadata).topic_id
    if archived != topic_id:
        name = table.name()[-1]
        raise TopicRecreated(
            f"{name} was deleted and recreated: its id is {topic_id} at the broker but {archived} in the archive. "
            f"Rename the archive's table {identifier(name)} to keep the old records, then start again."
        )


def require_adopted(settings: Settings, ids: Mapping[str, str]) -> None:
    """Refuse a catalog that was restored from a backup, for what relies on all that has happened since then.

    `ids` has the id of each topic.

    Raises:
        CatalogBehind: the bucket has a newer version of a topic's table. The message says what to do.
        ServiceDown: the catalog or the object store does not answer.
    """
    with stores_answer(), open_catalog(settings) as catalog:
        for topic, topic_id in ids.items():
            with suppress(NoSuchTableError):
                load_newest(catalog, identifier(topic), topic_id)


@contextmanager
def stores_answer() -> Iterator[None]:
    """Read the archive in this context.

    Raises:
        ServiceDown: the catalog or the object store does not answer.
        FilesDeleted: files were deleted while they were read.
    """
    try:
        yield
    except FileNotFoundError as deleted:
        raise FilesDeleted from deleted
    except (OSError, SQLAlchemyError, BotoCoreError, ClientError) as failed:
        why = f"the catalog or the object store did not answer: {failed}; see `truelog status`."
        raise ServiceDown(f"archive: {why}") from failed


def archived_positions(settings: Settings, topics: Iterable[str]) -> Positions:
    """The end of the archive in each partition; a topic that was never archived is left out.

    Raises:
        ServiceDown: the catalog or the object store does not answer, or the catalog is older than the bucket.
    """
    return archived_reach(settings, topics)[0]


def archived_reach(settings: Settings, topics: Iterable[str]) -> tuple[Positions, Epochs]:
    """The same, and the leader epochs in which the archive reached these positions, as far as they are known.

    Raises: as `archived_positions`.
    """
    offsets, ids, epochs = {}, {}, dict[PartitionKey, int]()
    for topic, table in _load_tables(settings, topics).items():
        progress = Progress.of(table.metadata)
        offsets[topic], ids[topic] = progress.positions, progress.topic_id
        epochs |= {(topic, partition): epoch for partition, epoch in progress.epochs.items()}
    return Positions(offsets, ids), epochs


class ArchivePosition:
    """The end of the archive in each registered topic, for a process that asks again and again.

    It asks the catalog which tables have changed, and reads only their metadata.
    """

    def __init__(self) -> None:
        self._known = Unchanged[Progress]()

    def load(self, settings: Settings) -> Positions:
        """The end of the archive now.

        If a topic has no table yet, the archive is where the topic began when it was registered. Otherwise, a topic
        that the archive never began would be missing from every report.

        Raises:
            ServiceDown: a store does not answer, or the catalog is older than the bucket.
        """
        with db_snapshot.read_snapshot(settings) as connection:
            registered = event_registry.beginnings(connection)
            locations = metadata_locations(connection, map(identifier, registered.offsets))
        archived = self._load_archived(settings, {t: locations.get(identifier(t)) for t in registered.offsets})
        offsets = {topic: progress.positions for topic, progress in archived.items()}
        ids = {topic: progress.topic_id for topic, progress in archived.items()}
        return Positions({**registered.offsets, **offsets}, {**registered.ids, **ids})

    def _load_archived(self, settings: Settings, locations: Mapping[str, str | None]) -> dict[str, Progress]:
        """The progress of the topics that have a table, given the metadata that the catalog names."""
        found = {t: self._known.get(identifier(t), location) for t, location in locations.items() if location}
        changed = [topic for topic, progress in found.items() if progress is None]
        for topic, table in (_load_tables(settings, changed) if changed else {}).items():
            found[topic] = progress = Progress.of(table.metadata)
            self._known.keep(identifier(topic), table.metadata_location, progress)
        return {topic: progress for topic, progress in found.items() if progress is not None}


def archive_position(settings: Settings) -> Positions:
    """The end of the archive in each registered topic, for a process that asks once. See `ArchivePosition`."""
    return ArchivePosition().load(settings)


def _load_tables(settings: Settings, topics: Iterable[str]) -> dict[str, Table]:
    """The tables of these topics, as far as they exist.

    Raises:
        ServiceDown: the catalog or the object store does not answer, or the catalog is older than the bucket.
    """
    found = dict[str, Table]()
    try:
        with stores_answer(), open_catalog(settings) as catalog:
            for topic in topics:
                with suppress(NoSuchTableError):
                    found[topic] = load_table(catalog, identifier(topic))
    except CatalogBehind as refused:
        raise ServiceDown(f"archive: {refused}") from refused
    return found


def _create(catalog: Catalog, event_type: EventType, progress: Progress) -> Table:
    catalog.create_namespace_if_not_exists(NAMESPACE)
    name, properties = identifier(event_type.name), {**_PROPERTIES, **progress.as_properties()}
    # A re-created topic needs a folder of its own: upkeep removes all files that a table does not know from its folder.
    own = f"{event_type.name}-{progress.topic_id.replace('/', '_')}"  # an id may contain "//", a path may not
    folder = f"{catalog.properties['warehouse'].rstrip('/')}/{NAMESPACE}/{own}"
    made = catalog.create_table_transaction(name, arrow_schema(event_type), folder, properties=properties)
    with made as transaction, transaction.update_spec() as spec:
        spec.add_identity("log_day")
        spec.add_identity("partition")
    table = catalog.load_table(name)
    advance_pointer(table)
    return table


def _load(text: str) -> dict[int, Any]:
    return {int(partition): value for partition, value in json.loads(text).items()}


def _dump(by_partition: Mapping[int, object]) -> str:
    return json.dumps({str(p): by_partition[p] for p in sorted(by_partition)}, separators=(",", ":"))
