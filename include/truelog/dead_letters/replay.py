"""Sends the dead letters that are valid now, each exactly once, whatever crashes and however often it is asked.

1. A database that was restored from a backup lacks the replays since then, so it must have been adopted.
2. Only one replay runs at a time: it holds an advisory lock of PostgreSQL. Its Kafka producer has a fixed transactional
   id, so that a predecessor that lost the lock without noticing can no longer write.
3. Reservations that a predecessor did not confirm are settled by a search of the log (`ledger`).
4. A dead letter is judged as the collector judges an event that arrived when the dead letter was received. The replayed
   event keeps its times, and `received_at` is the time when the collector received it.
5. A portion of valid dead letters is reserved, sent in one Kafka transaction, and confirmed.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import islice

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from truelog.archive.table import require_adopted
from truelog.dead_letters import ledger
from truelog.dead_letters.store import Coordinates, DeadLetter
from truelog.kafka.producer import open_producer
from truelog.log import topics
from truelog.log.access import REPLAY_TRANSACTIONS
from truelog.log.kafka_producer import client_error
from truelog.schema.event import EventTypes, registered_topics
from truelog.sources.collector.classifier import ClassifiedRecord, Defect, EventClassifier, Receipt
from truelog.sources.collector.parser import parse_event
from truelog.storage import audit_trail
from truelog.storage.audit_trail import OperationKind
from truelog.storage.database import Connection, connect, read_value
from truelog.storage.locks import Locks
from truelog.support.errors import Fenced, ServiceDown, TopicRefused
from truelog.support.faults import reach
from truelog.support.settings import KafkaUser, Settings

_PORTION = 500  # dead letters in one transaction
_TRANSACTION_MS = 20_000  # a replay that is killed delays readers of its target topics by at most this time
_INTERRUPTED = "an interrupted replay may have sent it; a replay without --dry-run finds out"


@dataclass
class ReplayResult:
    """What became of the dead letters. The reasons are those of the present event types."""

    sent: int = 0
    already_sent: int = 0
    invalid: Counter[str] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)


def judge(types: EventTypes, letter: DeadLetter) -> ClassifiedRecord | Defect:
    """The record that the collector would have written for the event, or why the event is still invalid."""
    receipt = Receipt(letter.received_at, letter.sender)
    return EventClassifier(types, len(letter.raw)).judge(parse_event(letter.raw), receipt)


def preview(settings: Settings, types: EventTypes, letters: Iterable[DeadLetter]) -> ReplayResult:
    """What `replay` would do now. Nothing is sent and nothing is stored.

    Raises:
        CatalogBehind: the database was restored from a backup. Run `truelog archive adopt` first.
    """
    require_adopted(settings, registered_topics(types))
    with connect(settings, autocommit=True) as connection:
        unknown = {each.letter: _INTERRUPTED for each in ledger.unconfirmed(connection)}
        run = _Replay(settings, types, connection, unknown)
        for portion in _portions(letters):
            run.result.sent += len(run.select(portion))
        return run.result


def replay(settings: Settings, types: EventTypes, letters: Iterable[DeadLetter], doer: str) -> ReplayResult:
    """Send the dead letters that are valid now and were not sent before.

    Raises:
        CatalogBehind: the database was restored from a backup. Run `truelog archive adopt` first.
        Fenced: another replay is running, or has taken over.
        ServiceDown: Kafka did not accept a portion. Run the replay again.
        ReadsOnly: the events are another environment's, which has to replay them.
    """
    settings.require_own_events("a replay of dead letters")
    require_adopted(settings, registered_topics(types))  # 1
    with connect(settings, autocommit=True) as connection, _only_replay(connection):  # 2
        try:
            producer = _producer(settings)  # from here on, no predecessor can write
            unknown = ledger.settle(connection, settings, types)
            reach("replay.settled")
            run = _Replay(settings, types, connection, unknown)
            for portion in _portions(letters):
                run.send(producer, run.select(portion), doer)
        except (KafkaException, SystemError) as failed:
            error = client_error(failed)
            if error.fatal() or error.code() in (KafkaError._FENCED, KafkaError._FATAL):
                raise Fenced(f"another replay has taken over ({error.str()}); wait until it has ended") from failed
            raise ServiceDown(f"Kafka did not accept the replay: {error.str()}; run the replay again") from failed
        if run.result.sent:
            about = f"{run.result.sent} dead letters"
            audit_trail.record_operation(connection, OperationKind.REPLAY, "dead_letters", doer, about)
        return run.result


@dataclass
class _Replay:
    """A replay in progress. `unknown` has the reason for each dead letter that may have been sent or not."""

    settings: Settings
    types: EventTypes
    connection: Connection
    unknown: Mapping[Coordinates, str]
    result: ReplayResult = field(default_factory=ReplayResult)
    _refused: dict[str, str] = field(default_factory=dict)  # reason by topic; empty if the topic can be written

    def select(self, letters: list[DeadLetter]) -> dict[Coordinates, ClassifiedRecord]:
        """The records to send. Counts the other dead letters in the result."""
        known = ledger.find_reservations(self.connection, [letter.at for letter in letters])
        selected = dict[Coordinates, ClassifiedRecord]()
        for letter in letters:
            record = judge(self.types, letter)
            if letter.at in self.unknown:
                self.result.skipped[self.unknown[letter.at]] += 1
            elif letter.at in known:
                self.result.already_sent += 1
            elif isinstance(record, Defect):
                self.result.invalid[f"{record.field}: {record.reason}"] += 1
            elif reason := self._refusal(record.topic):
                self.result.skipped[reason] += 1
            else:
                selected[letter.at] = record
        return selected

    def send(self, producer: Producer, records: Mapping[Coordinates, ClassifiedRecord], doer: str) -> None:
        """Reserve, send and confirm one portion."""
        if not records:
            return
        targets = {letter: record.topic for letter, record in records.items()}
        ends = topics.end_offsets(self.settings, set(targets.values()))
        ledger.reserve(self.connection, targets, ends, doer)
        reach("replay.reserved")
        places = dict[Coordinates, ledger.Place]()
        producer.begin_transaction()
        for letter, record in records.items():
            headers: dict[str, str | bytes | None] = {ledger.HEADER: str(letter).encode()}
            note = partial(_note, places, letter)
            producer.produce(record.topic, record.value, record.key, headers=headers, on_delivery=note)
        producer.flush()
        reach("replay.sent")
        producer.commit_transaction()
        reach("replay.committed")
        ledger.confirm(self.connection, places)
        reach("replay.confirmed")
        self.result.sent += len(places)

    def _refusal(self, topic: str) -> str:
        """Why nothing can be sent to the topic; empty if the topic can be written."""
        if topic not in self._refused:
            try:
                topics.require_log_append_time(self.settings, [topic])
                self._refused[topic] = ""
            except TopicRefused as refused:
                self._refused[topic] = str(refused)
        return self._refused[topic]


def _note(places: dict[Coordinates, ledger.Place], letter: Coordinates, error: object, message: Message) -> None:
    partition, offset = message.partition(), message.offset()
    if error is None and partition is not None and offset is not None:  # or the transaction cannot be committed
        places[letter] = partition, offset


@contextmanager
def _only_replay(connection: Connection) -> Iterator[None]:
    """Hold the lock that lets only one replay run. The lock ends with its session."""
    key = f"SELECT pg_try_advisory_lock({Locks.REPLAY})"
    if not read_value(connection, key):
        raise Fenced("another replay is running; wait until it has ended")
    yield


def _producer(settings: Settings) -> Producer:
    """The producer of replays. Fences its predecessor and aborts the predecessor's transaction.

    Raises:
        ServiceDown: Kafka did not answer.
    """
    producer = open_producer(
        {
            **settings.kafka(KafkaUser.PRODUCER),
            "transactional.id": REPLAY_TRANSACTIONS,
            "transaction.timeout.ms": _TRANSACTION_MS,
            "message.timeout.ms": _TRANSACTION_MS,
            "partitioner": "murmur2_random",
            "compression.type": "lz4",
            "log_level": 0,
        }
    )
    producer.init_transactions(60)
    return producer


def _portions(letters: Iterable[DeadLetter]) -> Iterator[list[DeadLetter]]:
    iterator = iter(letters)
    while portion := list(islice(iterator, _PORTION)):
        yield portion
