"""Lag: how far behind the log somebody stands, in records and in seconds.

Seconds are read from the log and never reckoned: they are the age, by the broker's clock, of the first record that is
still to be counted. Who has counted everything lags by nothing, however long ago the last record came. Where retention
took that record, the age is that of the first one left: who asks must look where the log begins.
"""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from truelog.log.positions import Positions
from truelog.support.errors import ServiceDown
from truelog.support.settings import Settings

_SECONDS = 10.0

Partition = tuple[str, int]  # of a topic
Coordinates = tuple[str, int, int]  # topic, partition, offset


@dataclass(frozen=True)
class Lag:
    """Records up to the end of the log, and seconds since the first of them came."""

    events: int
    seconds: float


def lags(settings: Settings, stands: Mapping[str, Positions], ends: Positions) -> dict[str, dict[Partition, Lag]]:
    """The lag of each, by name, in every partition of its topics, against where the log ends."""
    first = {(r.topic, r.partition, r.start) for at in stands.values() for r in at.ranges_to(ends.only(at.offsets))}
    came = _times(settings, first)
    now = time.time()

    def lag(at: Positions, topic: str, partition: int) -> Lag:
        start = at.at(topic, partition)
        since = came.get((topic, partition, start), now)
        return Lag(max(0, ends.at(topic, partition) - start), max(0.0, now - since))

    return {
        name: {place: lag(at, *place) for place in ends.only(at.offsets).partitions()} for name, at in stands.items()
    }


def _times(settings: Settings, places: Iterable[Coordinates]) -> dict[Coordinates, float]:
    """When the first record at or past each place came; none where only the traces of transactions follow."""
    found: dict[Coordinates, float] = {}
    rest = sorted(places)
    if not rest:
        return found
    consumer = Consumer(
        settings.kafka()
        | {
            "group.id": "truelog.lag",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_uncommitted",  # else a transaction left open would hide what came after it
            "auto.offset.reset": "earliest",  # where retention took the record
            "fetch.message.max.bytes": 65_536,  # one record is asked for, of partitions with millions
            "queued.min.messages": 1,
            "log_level": 0,
        }
    )
    try:
        while rest:  # a consumer reads a partition at one offset at a time
            round_ = {(topic, partition): offset for topic, partition, offset in reversed(rest)}
            found |= _first_of(consumer, round_)
            rest = [place for place in rest if round_[place[:2]] != place[2]]
    finally:
        consumer.close()
    return found


def _first_of(consumer: Consumer, at: dict[Partition, int]) -> dict[Coordinates, float]:
    found: dict[Coordinates, float] = {}
    waiting = set(at)
    consumer.assign([TopicPartition(topic, partition, offset) for (topic, partition), offset in at.items()])
    deadline = time.monotonic() + _SECONDS
    while waiting and time.monotonic() < deadline:
        message: Any = consumer.poll(0.2)
        if message is None:
            continue
        place = (message.topic(), message.partition())
        error = message.error()
        if error is not None and error.code() != KafkaError._PARTITION_EOF:
            raise ServiceDown(f"Kafka did not answer: {error.str()}; see `truelog status`.") from KafkaException(error)
        if error is None and place in waiting:
            found[*place, at[place]] = message.timestamp()[1] / 1000
        if place in waiting:
            waiting.remove(place)
            consumer.incremental_unassign([TopicPartition(*place)])  # its batches could fill each answer of the broker
    if waiting:
        raise ServiceDown(f"Kafka did not give the records at {sorted(waiting)} in time; see `truelog status`.")
    return found
