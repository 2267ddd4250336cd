"""The reader of the folds: keeps the states of keys equal to what the log says, and finds accepted events in it.

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

from truelog.commands import answers, catalogue, events
from truelog.commands.catalogue import Catalogue
from truelog.commands.declaration import Fold
from truelog.commands.events import LoggedEvent
from truelog.commands.folding import states
from truelog.commands.folding.archived import read_archived
from truelog.commands.folding.fold_positions import Reading, advance, begin, lock_positions, statuses
from truelog.commands.folding.log_record import LogRecord
from truelog.commands.folding.states import KeyName
from truelog.control import event_registry
from truelog.erasure import ledger
from truelog.log import topics
from truelog.log.positions import Positions, Range
from truelog.schema.event import EventType
from truelog.storage.database import Connection, connect
from truelog.support.errors import ServiceDown
from truelog.support.faults import reach
from truelog.support.settings import KafkaUser, Settings

log = logging.getLogger(__name__)

_PORTION = 1_000  # records
_POLL_SECONDS = 0.5
_CHECK_SECONDS = 10.0  # between two looks at the partitions and the event types
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
    """The reader of all folds whose event types have states.

    After an error, it is no longer used: another one begins at the stored positions.
    """

    def __init__(self, settings: Settings, commands: Catalogue) -> None:
        self._settings = settings
        self._catalogue = commands
        self._types = event_registry.confirmed_types(settings)
        self._folds = catalogue.usable_folds(commands, self._types)
        for event in sorted(commands.folds.keys() - self._folds.keys()):
            log.warning("no states are read: %s", catalogue.problem(self._types, event))

    def run(self, stopped: Flag) -> None:
        """Read until stopped, or until the folds or their topics are others.

        A topic may have other partitions or be created again, a fold may begin again, and an event type may have states
        from now on, or no longer.

        Raises:
            ServiceDown: Kafka did not answer.
            Stale: another reader is running.
            MeaningChanged: an event type has a version that this reader does not know.
            ArchiveBehind: Kafka has dropped records that a state lacks, and the archive does not contain them.
        """
        with connect(self._settings, autocommit=True) as connection, closing(self._consumer()) as consumer:
            reading = begin(connection, self._settings, self._catalogue, self._folds)
            self._fold_archived(connection, reading)
            consumer.assign([TopicPartition(t, p, o) for t, by in reading.items() for p, o in by.offsets.items()])
            broker, checked = topics.client(self._settings), monotonic()
            while not stopped.is_set():
                if monotonic() - checked > _CHECK_SECONDS:
                    if _are_others(topics.ends(broker, reading), reading) or self._has_other_folds(connection):
                        return
                    checked = monotonic()
                for portion in _portions(consumer):
                    self._fold(connection, reading[portion.event], portion)

    def _has_other_folds(self, connection: Connection) -> bool:
        """Whether a fold begins again, or other event types have states than at the start."""
        usable = catalogue.usable_folds(self._catalogue, event_registry.load_types(connection))
        return usable.keys() != self._folds.keys() or not usable.keys() <= statuses(connection).keys()

    def _consumer(self) -> Consumer:
        return Consumer({**self._settings.kafka(KafkaUser.READER), **_READING})

    def _fold_archived(self, connection: Connection, reading: Mapping[str, Reading]) -> None:
        """Fold what Kafka has dropped since, or before the fold was made, and what only the archive has erased."""
        begins = topics.begins(topics.client(self._settings), reading)
        begins = begins.latest(ledger.erased_below(connection, begins))
        for event, each in reading.items():
            for partition, offset in sorted(each.offsets.items()):
                dropped = Range(event, partition, offset, begins.at(event, partition))
                for records, end in read_archived(self._settings, each.topic_id, dropped) if _is_any(dropped) else ():
                    self._fold(connection, each, Portion(event, records, {partition: end}))

    def _fold(self, connection: Connection, reading: Reading, portion: Portion) -> None:
        ends = Positions({portion.event: portion.ends}, {portion.event: reading.topic_id})
        event_registry.require_known(connection, self._types, ends)
        event_type, fold = self._types[portion.event], self._folds[portion.event]
        fold_portion(connection, event_type, fold, reading, portion)
        reach("fold.committed")


def _is_any(dropped: Range) -> bool:
    return dropped.start < dropped.end


def _are_others(ends: Positions, reading: Mapping[str, Reading]) -> bool:
    """Whether a topic has gained or lost partitions since it was assigned, or was created again."""
    return any(
        ends.ids[event] != each.topic_id or ends.offsets[event].keys() != each.offsets.keys()
        for event, each in reading.items()
    )


def fold_portion(connection: Connection, event_type: EventType, fold: Fold, reading: Reading, portion: Portion) -> None:
    """Fold the records, and advance the positions of `reading`."""
    found = events.logged(event_type, portion.records)
    by_key: dict[KeyName, list[LoggedEvent]] = defaultdict(list)
    for each in found:
        if each is not None:
            by_key[KeyName(portion.event, each.key)].append(each)
    with connection.transaction():
        states.lock_keys(connection, by_key)
        lock_positions(connection, portion.event, reading)
        reach("fold.locked")
        answers.store_coordinates(connection, portion.event, _coordinates(found, portion.records))
        before = states.read_logged(connection, by_key)
        after = {name: states.folded(fold, before[name], [e.payload for e in each]) for name, each in by_key.items()}
        states.write_logged(connection, after)
        advance(connection, portion.event, portion.ends)
        reach("fold.written")
    reading.offsets.update(portion.ends)


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


def _portions(consumer: Consumer) -> Iterator[Portion]:
    """What has arrived, by topic. An end of a partition lies past the markers of transactions, which no reader gets.

    Raises:
        ServiceDown: Kafka did not return the records.
    """
    first = consumer.poll(_POLL_SECONDS)
    arrived = [] if first is None else [first, *consumer.consume(_PORTION - 1, 0)]
    records: dict[str, list[LogRecord]] = defaultdict(list)
    ends: dict[str, dict[int, int]] = defaultdict(dict)
    for each in arrived:
        topic, error = each.topic() or "", each.error()
        if error is not None and error.code() != KafkaError._PARTITION_EOF:
            raise ServiceDown(f"Kafka cannot return the records of {topic} {each.partition()}: {error.str()}")
        if error is None:
            records[topic].append(_record(each))
        offset = (each.offset() or 0) + (error is None)
        ends[topic][each.partition() or 0] = max(ends[topic].get(each.partition() or 0, 0), offset)
    return (Portion(topic, records[topic], by) for topic, by in ends.items())
