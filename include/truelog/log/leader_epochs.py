"""Leader epochs: how a reader notices that the log has lost its end, although the log has grown past that end since.

Each time a partition gets a leader, its epoch grows, and each record has the epoch in which it was written. After a
power failure or an unclean election, the log may end before a reader's position. New records then reuse the offsets
that the reader has already passed, and only the epoch differs. The broker knows where each epoch ends. If the epoch in
which a position was reached now ends before that position, the log was cut (KIP-320).

A batch takes the epochs before any of its records is read, and compares them after all its records were read. If an
epoch has changed in between, the records may be from both sides of a cut, and the batch is repeated. The epochs are
stored with the positions, but no comparison of positions uses them.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient

from truelog.log import topics
from truelog.log.kafka_reader import open_reader
from truelog.log.positions import Positions
from truelog.log.topics import PartitionKey
from truelog.support.errors import LeaderChanged, LogCut, ServiceDown
from truelog.support.settings import Settings

_TIMEOUT_SECONDS = 20.0
_RECORDS_BELOW = 10  # offsets below a position at which records are looked for; markers of transactions take some
_CUT = re.compile(r"truncation.*broker end offset is (\d+)")

Epochs = Mapping[PartitionKey, int]


@dataclass(frozen=True)
class Cut:
    """A log that now ends its `epoch` at `end`, although a reader reached `position` in that epoch."""

    topic: str
    topic_id: str
    partition: int
    epoch: int
    position: int
    end: int

    def __str__(self) -> str:
        lost = f"[{self.end}, {self.position})"
        return (
            f"{self.topic} {self.partition}: Kafka has lost the records {lost}, which were read already, and new "
            "records reuse their offsets. Nothing is read from this partition."
        )


def take_epochs(broker: AdminClient, positions: Positions) -> Epochs:
    """The current leader epoch of each partition in the positions.

    Raises:
        ServiceDown: Kafka does not answer about a partition.
    """
    return topics.leader_epochs(broker, positions.partitions())


def require_same(before: Epochs, now: Epochs) -> None:
    """Require that no partition had a change of its leader while a batch was read.

    Raises:
        LeaderChanged: the batch must be repeated.
    """
    changed = sorted(f"{t} {p}" for (t, p), epoch in before.items() if now.get((t, p), epoch) != epoch)
    if changed:
        raise LeaderChanged(f"{', '.join(changed)}: the leader changed while the batch was read; it is repeated")


def require_intact(settings: Settings, positions: Positions, reached: Epochs, now: Epochs) -> None:
    """Require that the log still has the records up to these positions, which were reached in the epochs `reached`.

    The broker is asked only about partitions whose epoch has changed since then.

    Raises:
        LogCut: the log has lost records before a position.
        ServiceDown: Kafka does not answer about a partition.
    """
    changed = {key: epoch for key, epoch in reached.items() if now.get(key, epoch) != epoch}
    cuts = list(find_cuts(settings, positions, changed)) if changed else []
    if cuts:
        raise LogCut(" ".join([*map(str, cuts), _cure(settings)]), cuts)


def _cure(settings: Settings) -> str:
    """What lets readers go on. An environment that reads the events of another one has no other records to keep."""
    if not settings.reads_events:
        return "Run `truelog archive accept-cut`."
    return (
        f"Run `truelog archive accept-cut` in {settings.read_environment}. Then set this environment up again, with a "
        "new database and a new bucket (docs/production.md)."
    )


def find_cuts(settings: Settings, positions: Positions, reached: Epochs) -> Iterator[Cut]:
    """Each partition whose log was cut below its position.

    The client asks the broker where an epoch ends before it reads (KIP-320). A client that does not ask, because its
    metadata has changed at that moment, is silent about a cut. The records before a position prove that it has asked.

    Raises:
        ServiceDown: Kafka does not answer, or the records contradict its answer.
    """
    intact = dict(reached)
    for key, message in _first_answers(settings, positions, reached):
        if (end := _end_of_cut(message)) is not None:
            topic, partition = key
            yield Cut(topic, positions.ids[topic], partition, intact.pop(key), positions.at(*key), end)
    _require_no_newer_epoch(settings, positions, intact)


def _require_no_newer_epoch(settings: Settings, positions: Positions, reached: Epochs) -> None:
    """Require that the log reaches each position, and that no record just below it is from a later epoch."""
    with _reader(settings) as consumer:
        begins = {key: _first_below(consumer, key, positions.at(*key)) for key in reached}
        waiting = {key for key, begin in begins.items() if begin < positions.at(*key)}
        consumer.assign([TopicPartition(*key, begins[key]) for key in waiting])
        while waiting:
            key, message = _poll(consumer)
            position, error = positions.at(*key), message.error()
            offset, epoch = message.offset() or 0, message.leader_epoch() or 0
            if error is None and offset < position and epoch > reached[key]:
                raise ServiceDown(
                    f"{key[0]} {key[1]}: the record at {offset}, before the position {position}, has the leader epoch "
                    f"{epoch}, but the position was reached in the epoch {reached[key]}. Kafka is asked again."
                )
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                raise ServiceDown(f"Kafka did not show its records before a position: {error.str()}")
            if offset + (error is None) >= position:
                waiting.discard(key)


def _first_below(consumer: Consumer, key: PartitionKey, position: int) -> int:
    """The offset some records below a position; the position if retention has dropped all records below it.

    Raises:
        ServiceDown: the log ends before the position, so a record there proves nothing yet.
    """
    try:
        first, end = consumer.get_watermark_offsets(TopicPartition(*key), _TIMEOUT_SECONDS)
    except KafkaException as error:
        raise ServiceDown(f"Kafka did not say where {key[0]} {key[1]} ends: {error}") from error
    if end < position:
        where = f"{key[0]} {key[1]}"
        raise ServiceDown(f"{where}: the log ends at {end}, before the position {position}. Kafka is asked again.")
    return min(position, max(int(first), position - _RECORDS_BELOW))


def _first_answers(settings: Settings, positions: Positions, reached: Epochs) -> Iterator[tuple[PartitionKey, Message]]:
    """The first record, or the error, of a read from the position in each partition, in the epoch that reached it."""
    waiting = set(reached)
    with _reader(settings) as consumer:
        consumer.assign([TopicPartition(t, p, positions.at(t, p), leader_epoch=e) for (t, p), e in reached.items()])
        while waiting:
            key, message = _poll(consumer)
            if key in waiting:
                waiting.discard(key)
                yield key, message


def _reader(settings: Settings) -> closing[Consumer]:
    """A client that also reads records whose transaction is open, which therefore delays no answer."""
    quick = {"isolation.level": "read_uncommitted", "fetch.wait.max.ms": 10, "log_level": 0}
    return closing(open_reader(settings, **quick))


def _poll(consumer: Consumer) -> tuple[PartitionKey, Message]:
    message = consumer.poll(_TIMEOUT_SECONDS)
    if message is None:
        raise ServiceDown(f"Kafka did not say within {_TIMEOUT_SECONDS:.0f} s whether it has lost records")
    return (str(message.topic()), int(message.partition() or 0)), message


def _end_of_cut(message: Message) -> int | None:
    """Where the reader's epoch ends, if it ends before the reader's position; None if the position is in the log.

    Retention may have dropped the position. The reader then continues from the archive, so this is not a cut.

    Raises:
        ServiceDown: the broker answered with another error, or it does not know where the epoch ends.
    """
    error = message.error()
    if error is None or error.code() == KafkaError._PARTITION_EOF:
        return None
    if error.code() not in (KafkaError._AUTO_OFFSET_RESET, KafkaError._LOG_TRUNCATION):
        raise ServiceDown(f"Kafka did not say whether it has lost records: {error.str()}")
    if error.code() == KafkaError._AUTO_OFFSET_RESET and "truncation" not in error.str():
        return None
    found = _CUT.search(error.str())
    if found is None:
        raise ServiceDown(f"Kafka does not know where the reader's leader epoch ends: {error.str()}")
    return int(found.group(1))
