"""Lag: how far a reader is behind the end of the log, in records and in seconds.

The seconds come from the log and are not an estimate. They are the age of the reader's first unread record, by the
broker's clock. A reader that has read everything has no lag, however long ago the last record arrived. If retention
has deleted the first unread record, the age is that of the first remaining record, so the caller must also check where
the log begins.
"""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from truelog.kafka.consumer import open_consumer
from truelog.log.positions import Positions
from truelog.support.errors import ServiceDown
from truelog.support.settings import KafkaUser, Settings

_SECONDS = 10.0

Partition = tuple[str, int]  # topic, partition
Coordinates = tuple[str, int, int]  # topic, partition, offset


@dataclass(frozen=True)
class Lag:
    """The number of unread records, and the age of the first unread record in seconds."""

    events: int
    seconds: float


def lags(settings: Settings, positions: Mapping[str, Positions], ends: Positions) -> dict[str, dict[Partition, Lag]]:
    """The lag of each reader in every partition of its topics, by reader name."""
    first = {(r.topic, r.partition, r.start) for at in positions.values() for r in at.ranges_to(ends.only(at.offsets))}
    times = _times(settings, first)
    now = time.time()

    def lag(at: Positions, topic: str, partition: int) -> Lag:
        start = at.at(topic, partition)
        since = times.get((topic, partition, start), now)
        return Lag(max(0, ends.at(topic, partition) - start), max(0.0, now - since))

    return {
        name: {partition: lag(at, *partition) for partition in ends.only(at.offsets).partitions()}
        for name, at in positions.items()
    }


def _times(settings: Settings, starts: Iterable[Coordinates]) -> dict[Coordinates, float]:
    """The time of the first record at or after each offset. An offset is left out if it has no such record."""
    found: dict[Coordinates, float] = {}
    remaining = sorted(starts)
    if not remaining:
        return found
    consumer = open_consumer(
        settings.kafka(KafkaUser.READER)
        | {
            "group.id": "truelog.lag",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_uncommitted",  # an open transaction would hide the records after it
            "auto.offset.reset": "earliest",  # if retention has deleted the record at the offset
            "fetch.message.max.bytes": 65_536,  # one record is enough, and a partition may have millions
            "queued.min.messages": 1,
            "log_level": 0,
        }
    )
    try:
        while remaining:  # a consumer reads a partition from one offset at a time
            round_ = {(topic, partition): offset for topic, partition, offset in reversed(remaining)}
            found |= _first_times(consumer, round_)
            remaining = [start for start in remaining if round_[start[:2]] != start[2]]
    finally:
        consumer.close()
    return found


def _first_times(consumer: Consumer, offsets: dict[Partition, int]) -> dict[Coordinates, float]:
    found: dict[Coordinates, float] = {}
    waiting = set(offsets)
    consumer.assign([TopicPartition(topic, partition, offset) for (topic, partition), offset in offsets.items()])
    deadline = time.monotonic() + _SECONDS
    while waiting and time.monotonic() < deadline:
        message: Any = consumer.poll(0.2)
        if message is None:
            continue
        partition = (message.topic(), message.partition())
        error = message.error()
        if error is not None and error.code() != KafkaError._PARTITION_EOF:
            raise ServiceDown(f"Kafka did not answer: {error.str()}; see `truelog status`.") from KafkaException(error)
        if error is None and partition in waiting:
            found[*partition, offsets[partition]] = message.timestamp()[1] / 1000
        if partition in waiting:
            waiting.remove(partition)
            consumer.incremental_unassign([TopicPartition(*partition)])  # or its batches could fill every response
    if waiting:
        raise ServiceDown(f"Kafka did not return the records at {sorted(waiting)} in time; see `truelog status`.")
    return found
