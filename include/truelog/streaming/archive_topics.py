"""The topics that the archive application can archive now, and the reasons for the topics that it suspends.

A topic is suspended if it cannot be read safely (`truelog.log.topic_health`), if it was deleted and created again, if
its table cannot take the declared columns, or if the log has dropped records that are not archived. The application
archives the other topics, and examines all topics again at intervals.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import ValidationError
from pyiceberg.table import Table

from truelog.archive.accept_loss import lost_ranges
from truelog.archive.catalog_pointer import Unchanged, metadata_locations
from truelog.archive.table import Progress, ensure_table, identifier
from truelog.control import event_registry, log_cuts, topic_status
from truelog.control.application import ARCHIVE
from truelog.control.log_cuts import ReaderState
from truelog.log import topics
from truelog.log.leader_epochs import Epochs, take_epochs
from truelog.log.positions import Positions
from truelog.log.topic_health import examine_topics
from truelog.log.topics import PartitionKey
from truelog.schema.event import EventType, EventTypes, registered_topics
from truelog.storage.database import connect
from truelog.support.errors import CatalogBehind, LogCut, TopicRecreated, TopicRefused
from truelog.support.settings import Settings


@dataclass(frozen=True)
class Assessment:
    """The tables of the good topics, where to begin in them, and the reason for each topic that is suspended.

    New partitions begin at 0, new topics where they began when they were registered.
    """

    begin: Positions = field(default_factory=Positions)
    tables: Mapping[str, Table] = field(default_factory=dict)
    bad: Mapping[str, str] = field(default_factory=dict)
    reached: Epochs = field(default_factory=dict)  # the leader epochs in which the archive reached its positions


class _Ensured(NamedTuple):
    """A topic's table with the columns of this type, which was the newest of the bucket at most minutes ago."""

    event_type: EventType
    topic_id: str
    table: Table


def require_uncut(settings: Settings, archived: Positions, reached: Epochs, now: Epochs) -> None:
    """Require that the log still has the archived records.

    Raises:
        LogCut: the log has lost archived records. The cuts are recorded.
    """
    if all(now.get(key, epoch) == epoch for key, epoch in reached.items()):
        return  # as in nearly every batch, without a connection
    with connect(settings, autocommit=True) as connection:
        log_cuts.require_intact(settings, connection, ReaderState(ARCHIVE, archived, reached), now)


class ArchiveTopics:
    """Assesses all declared topics, and notices when an assessment has changed."""

    def __init__(self, settings: Settings, catalog: Catalog, types: EventTypes) -> None:
        self._settings, self._catalog, self._types = settings, catalog, types
        self._broker = topics.client(settings)
        self._assessed = Assessment()
        self._ensured = Unchanged[_Ensured]()

    def assess(self) -> Assessment:
        """Assess every topic and record the topics that are suspended."""
        try:
            assessed = self._assess()
        except TopicRefused:  # a topic was deleted after it was examined
            assessed = self._assess()
        if assessed.bad != self._assessed.bad or not self._assessed.tables:
            with connect(self._settings) as connection:
                topic_status.record_suspended(connection, ARCHIVE, assessed.bad)
        self._assessed = assessed
        return assessed

    def _assess(self) -> Assessment:
        health = examine_topics(self._broker, self._types, registered_topics(self._types))
        bad, tables, reached = dict(health.bad), dict[str, Table](), dict[PartitionKey, int]()
        archived, offsets = Positions(), health.earliest.offsets
        now = take_epochs(self._broker, health.earliest)
        with connect(self._settings) as connection:
            began = health.earliest.earliest(event_registry.beginnings(connection).only(offsets))
            locations = metadata_locations(connection, map(identifier, offsets))
        for name, topic_id in health.earliest.ids.items():
            try:
                location = locations.get(identifier(name))
                tables[name] = self._table(self._types[name], topic_id, began=began.offsets[name], location=location)
                progress = Progress.of(tables[name].metadata)
                of_topic = Positions({name: progress.positions}, {name: topic_id})
                epochs = {(name, p): epoch for p, epoch in progress.epochs.items()}
                require_uncut(self._settings, of_topic, epochs, now)
            except (TopicRecreated, CatalogBehind, LogCut, ValueError) as error:
                bad[name] = str(error)
                continue
            archived, reached = archived.latest(of_topic), reached | epochs
        for lost in lost_ranges(archived, health.earliest):
            bad[lost.topic] = (
                f"{lost.topic} {lost.partition}: the log begins at {lost.end}, but the archive ends at {lost.start}. "
                "The records in between are lost. Increase the topic's retention and run `truelog archive accept-loss`."
            )
        begin = archived.latest(Positions({t: dict.fromkeys(by, 0) for t, by in offsets.items() if t in tables}))
        good = {name: table for name, table in tables.items() if name not in bad}
        return Assessment(begin.only(good), good, bad, {key: e for key, e in reached.items() if key[0] in good})

    def _table(self, event_type: EventType, topic_id: str, *, began: Mapping[int, int], location: str | None) -> Table:
        """The topic's table. It is ensured again only if the topic, its type or the catalog's metadata has changed."""
        name = identifier(event_type.name)
        ensured = self._ensured.get(name, location) if location else None
        if ensured is None or (ensured.event_type, ensured.topic_id) != (event_type, topic_id):
            ensured = _Ensured(event_type, topic_id, self._ensure(event_type, topic_id, began))
            self._ensured.keep(name, ensured.table.metadata_location, ensured)
        return ensured.table

    def _ensure(self, event_type: EventType, topic_id: str, began: Mapping[int, int]) -> Table:
        try:
            return ensure_table(self._catalog, event_type, topic_id, began)
        except (ValidationError, ValueError) as error:
            raise ValueError(
                f"The archive's table {identifier(event_type.name)} cannot take the declared columns: {error}. "
                "Restore the field's former type, or give the new field another name."
            ) from error

    def changed(self) -> str:
        """What has changed since the topics were last examined, or an empty string."""
        before, after = self._assessed, self.assess()
        changed = sorted(before.bad.keys() ^ after.bad.keys())
        changed += [t for t, i in after.begin.ids.items() if before.begin.ids.get(t, i) != i]
        return ", ".join(f"{topic}: {after.bad.get(topic, 'can be archived')}" for topic in changed)
