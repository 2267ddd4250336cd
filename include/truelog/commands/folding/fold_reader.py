"""The reader of a fold: keeps the states of keys equal to what the log says, and finds accepted events in it.

It reads as a reader of committed records. One transaction folds the records of a portion of the log, stores the
coordinates of the accepted events among them, and advances the positions. If two readers run, the positions refuse one.
"""

import json
import logging
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from threading import Event as Flag
from time import monotonic

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition
from confluent_kafka.admin import AdminClient

from truelog.commands import answers, catalogue, events
from truelog.commands.catalogue import Catalogue
from truelog.commands.declaration import Fold
from truelog.commands.events import LoggedEvent
from truelog.commands.folding import states
from truelog.commands.folding.archived import read_archived
from truelog.commands.folding.fold_positions import (
    Reading,
    advance,
    begin_fold,
    delete_withdrawn,
    lock_positions,
    require_current,
)
from truelog.commands.folding.log_record import LogRecord
from truelog.commands.folding.states import KeyName
from truelog.control import event_registry, log_cuts
from truelog.erasure import ledger
from truelog.kafka.consumer import open_consumer
from truelog.log import topics
from truelog.log.positions import Positions, Range
from truelog.schema.event import EventType, EventTypes
from truelog.storage.database import Connection, connect
from truelog.support.errors import NotSetUp, ServiceDown
from truelog.support.faults import reach
from truelog.support.settings import KafkaUser, Settings

log = logging.getLogger(__name__)

_PORTION = 1_000  # records
_POLL_SECONDS = 0.5
# A transaction costs as much as dozens of events, so events that no command waits for may wait.
_SHORT_REST_SECONDS, _LONG_REST_SECONDS = 0.05, 0.25
_HURRY_SECONDS = 1.0  # so long after accepted events were published, rests are short
_CHECK_SECONDS = 10.0  # between two looks at the partitions
_READING = {
    "group.id": "truelog-commands",  # required, but a reader with assigned partitions joins no group
    "enable.auto.commit": False,
    "enable.partition.eof": True,
    "isolation.level": "read_committed",
    "auto.offset.reset": "error",
    "reconnect.backoff.max.ms": 1_000,
    "check.crcs": True,
    "log_level": 0,
}


@dataclass(frozen=True)
class Portion:
    """The next records of a topic, and how far each of their partitions is read with them."""

    event: str
    records: Sequence[LogRecord]
    ends: Mapping[int, int]


class FoldReader:
    """The reader of one fold. Each fold has its own connections, so an error or an outage of one stops no other."""

    def __init__(self, settings: Settings, commands: Catalogue, event: str) -> None:
        self._settings = settings
        self._catalogue = commands
        self._event = event
        self._types: EventTypes = {}
        self._hurries_until = 0.0
        self._hurried = Flag()

    def run(self, stopped: Flag) -> None:
        """Read from the stored positions until stopped, or until the topic has other partitions or is another one.

        Raises:
            NotSetUp: the event type has no states.
            PartitionsAdded: the topic has more partitions than its positions, so the events of a key have no order.
            ServiceDown: Kafka did not answer.
            Stale: the states were withdrawn, or another reader is running.
            MeaningChanged: the event type has a version that this reader does not know.
            ArchiveBehind: Kafka has dropped records that a state lacks, and the archive does not contain them.
            CatalogBehind: the same, and the database was restored from a backup. Run `truelog archive adopt`.
            FoldFailed: the fold cannot read an event.
        """
        with connect(self._settings, autocommit=True) as connection:
            if reason := catalogue.problem(event_registry.load_types(connection), self._event):
                raise NotSetUp(reason)
            broker = topics.client(self._settings)
            reading = self._begin(connection, broker, stopped)
            if reading is None:
                return
            # After the beginning: if the history is judged again meanwhile, the states are withdrawn, which is noticed.
            self._types = event_registry.confirmed_types(self._settings)
            self._fold_archived(connection, broker, reading, stopped)
            with closing(open_consumer({**self._settings.kafka(KafkaUser.READER), **_READING})) as consumer:
                consumer.assign([TopicPartition(self._event, p, offset) for p, offset in reading.offsets.items()])
                self._follow(connection, consumer, broker, reading, stopped)

    def _begin(self, connection: Connection, broker: AdminClient, stopped: Flag) -> Reading | None:
        """Where to continue, after states that do not count are deleted. None if stopped meanwhile."""
        ends, began = topics.ends(broker, [self._event]), event_registry.beginnings(connection)
        first = {partition: began.at(self._event, partition) for partition in ends.offsets[self._event]}
        code, topic_id = self._catalogue.codes[self._event], ends.ids[self._event]
        while (reading := begin_fold(connection, self._event, code, topic_id, first)) is None and not stopped.is_set():
            delete_withdrawn(connection, self._event, stopped)
        return reading

    def _fold_archived(self, connection: Connection, broker: AdminClient, reading: Reading, stopped: Flag) -> None:
        """Fold what Kafka has dropped since, or before the fold was made, and what only the archive can tell.

        The archive has erased some records, and below an accepted cut, the log contains other records.
        """
        begins = topics.begins(broker, [self._event])
        begins = begins.latest(ledger.erased_below(connection, begins))
        begins = begins.latest(log_cuts.trusted_from(connection, begins))
        for partition, offset in sorted(reading.offsets.items()):
            wanted = Range(self._event, partition, offset, begins.at(self._event, partition))
            for records, end in read_archived(self._settings, reading.topic_id, wanted) if _is_any(wanted) else ():
                if stopped.is_set():
                    return
                self._fold(connection, reading, Portion(self._event, records, {partition: end}))

    def _follow(
        self, connection: Connection, consumer: Consumer, broker: AdminClient, reading: Reading, stopped: Flag
    ) -> None:
        checked = monotonic()
        while not stopped.is_set():
            if monotonic() - checked > _CHECK_SECONDS:
                if _is_other(topics.ends(broker, [self._event]), self._event, reading):
                    return
                checked = monotonic()
            portion = _portion(consumer, self._event)
            if not portion.ends:
                require_current(connection, self._event, reading)
            elif not self._fold(connection, reading, portion) and len(portion.records) < _PORTION:
                self._rest(stopped)

    def hurry(self) -> None:
        """Rest only shortly for a while: the relay has published accepted events. Its thread calls this."""
        self._hurries_until = monotonic() + _HURRY_SECONDS
        self._hurried.set()

    def _rest(self, stopped: Flag) -> None:
        """Let more events arrive."""
        stopped.wait(_SHORT_REST_SECONDS)
        self._hurried.clear()  # before the look at the time, which `hurry` sets first
        if monotonic() > self._hurries_until:
            self._hurried.wait(_LONG_REST_SECONDS - _SHORT_REST_SECONDS)

    def _fold(self, connection: Connection, reading: Reading, portion: Portion) -> bool:
        ends = Positions({portion.event: portion.ends}, {portion.event: reading.topic_id})
        event_registry.require_known(self._settings, connection, self._types, ends)
        event_type, fold = self._types[portion.event], self._catalogue.folds[portion.event]
        is_awaited = fold_portion(connection, event_type, fold, reading, portion)
        reach("fold.committed")
        return is_awaited


def _is_any(dropped: Range) -> bool:
    return dropped.start < dropped.end


def _is_other(ends: Positions, event: str, reading: Reading) -> bool:
    """Whether the topic has gained or lost partitions since it was assigned, or was created again."""
    return ends.ids[event] != reading.topic_id or ends.offsets[event].keys() != reading.offsets.keys()


def fold_portion(connection: Connection, event_type: EventType, fold: Fold, reading: Reading, portion: Portion) -> bool:
    """Fold the records, and advance the positions of `reading`. Returns whether commands may wait for the records."""
    found = events.logged(event_type, portion.records)
    by_key: dict[KeyName, list[LoggedEvent]] = defaultdict(list)
    for each in found:
        if each is not None:
            by_key[KeyName(portion.event, each.key)].append(each)
    with connection.transaction():
        states.lock_keys(connection, by_key)
        lock_positions(connection, portion.event, reading)
        reach("fold.locked")
        awaited = answers.store_coordinates(connection, portion.event, _coordinates(found, portion.records))
        before = states.read_logged(connection, by_key)
        after = {name: states.folded(fold, before[name], [e.payload for e in each]) for name, each in by_key.items()}
        states.write_logged(connection, after)
        advance(connection, portion.event, portion.ends)
        reach("fold.written")
    reading.offsets.update(portion.ends)
    if lost := sorted(awaited - {each.event_id for each in found if each is not None}):
        log.warning(
            "accepted events of %s are not valid in the log, so no reader counts them: %s. Is PostgreSQL's clock far "
            "ahead of Kafka's, or does a newer version of the event type refuse them?",
            portion.event,
            ", ".join(lost),
        )
    return bool(awaited)


def _coordinates(found: Sequence[LoggedEvent | None], records: Sequence[LogRecord]) -> Iterator[answers.Coordinates]:
    """Where the records are. A version that is newer than a decision may find its event invalid, so these count too."""
    for event, record in zip(found, records, strict=True):
        event_id = _event_id(record) if event is None else event.event_id
        if event_id is not None:
            yield answers.Coordinates(event_id, record.value or b"", record.partition, record.offset)


def _event_id(record: LogRecord) -> str | None:
    try:
        value = json.loads(record.value or b"")
    except (ValueError, RecursionError):
        return None
    found = value.get("event_id") if isinstance(value, dict) else None
    return found if isinstance(found, str) and found.isascii() and found.isprintable() else None


def _record(message: Message) -> LogRecord:
    value = message.value()
    time = datetime.fromtimestamp(message.timestamp()[1] / 1000, UTC)
    raw = value.encode() if isinstance(value, str) else value
    return LogRecord(message.partition() or 0, message.offset() or 0, time, raw)


def _portion(consumer: Consumer, event: str) -> Portion:
    """What has arrived. An end of a partition lies past the markers of transactions, which no reader gets.

    Raises:
        ServiceDown: Kafka did not return the records.
    """
    first = consumer.poll(_POLL_SECONDS)
    arrived = [] if first is None else [first, *consumer.consume(_PORTION - 1, 0)]
    records, ends = list[LogRecord](), dict[int, int]()
    for each in arrived:
        partition, offset, error = each.partition() or 0, each.offset() or 0, each.error()
        if error is not None and error.code() != KafkaError._PARTITION_EOF:
            raise ServiceDown(f"Kafka cannot return the records of {event} {partition}: {error.str()}")
        if error is None:
            records.append(_record(each))
        ends[partition] = max(ends.get(partition, 0), offset + (error is None))
    return Portion(event, records, ends)
