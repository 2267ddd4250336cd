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
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition
from confluent_kafka.admin import AdminClient

from truelog.log import topics
from truelog.log.positions import Positions
from truelog.log.topics import PartitionKey
from truelog.support.errors import LeaderChanged, LogCut, ServiceDown
from truelog.support.settings import KafkaUser, Settings

_TIMEOUT_SECONDS = 20.0
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
            "records reuse their offsets. Nothing is read from this partition. Run `truelog archive accept-cut`."
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
        raise LogCut(" ".join(map(str, cuts)), cuts)


def find_cuts(settings: Settings, positions: Positions, reached: Epochs) -> Iterator[Cut]:
    """Each partition whose log was cut below its position. The client validates an epoch before it reads (KIP-320)."""
    consumer = Consumer(
        {
            **settings.kafka(KafkaUser.READER),
            "group.id": "truelog-audit",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "fetch.wait.max.ms": 10,
            "log_level": 0,
        }
    )
    waiting = dict(reached)
    try:
        consumer.assign([TopicPartition(t, p, positions.at(t, p), leader_epoch=e) for (t, p), e in reached.items()])
        while waiting:
            message = consumer.poll(_TIMEOUT_SECONDS)
            if message is None:
                raise ServiceDown(f"Kafka did not say within {_TIMEOUT_SECONDS:.0f} s whether it has lost records")
            key = str(message.topic()), int(message.partition() or 0)
            end = _end_of_cut(message)
            if key in waiting:
                epoch = waiting.pop(key)
                if end is not None:
                    topic, partition = key
                    position = positions.at(topic, partition)
                    yield Cut(topic, positions.ids[topic], partition, epoch, position, end)
    finally:
        consumer.close()


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
