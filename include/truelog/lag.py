"""Lag: how far behind the log somebody stands, in records and in seconds.

Seconds are read from the log and never reckoned: they are the age, by the broker's clock, of the first record that is
still to be counted. Who has counted everything lags by nothing, however long ago the last record came.
"""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from truelog.errors import ServiceDown
from truelog.positions import Positions
from truelog.settings import Settings

_SECONDS = 10.0

Place = tuple[str, int, int]  # topic, partition, offset


@dataclass(frozen=True)
class Lag:
    """Records up to the end of the log, and seconds since the first of them came."""

    events: int
    seconds: float


def lags(settings: Settings, stands: dict[str, Positions], ends: Positions) -> dict[str, Lag]:
    """The lag of each, by name, against where the log ends."""
    missing = {name: at.ranges_to(ends.only(at.offsets)) for name, at in stands.items()}
    first = {(r.topic, r.partition, r.start) for ranges in missing.values() for r in ranges}
    came = _times(settings, first)
    now = time.time()
    return {
        name: Lag(
            events=sum(r.end - r.start for r in ranges),
            seconds=max((now - came.get((r.topic, r.partition, r.start), now) for r in ranges), default=0.0),
        )
        for name, ranges in missing.items()
    }


def _times(settings: Settings, places: Iterable[Place]) -> dict[Place, float]:
    """When the first record at or past each place came; none where only the traces of transactions follow."""
    found: dict[Place, float] = {}
    rest = sorted(places)
    if not rest:
        return found
    consumer = Consumer(
        settings.kafka()
        | {"group.id": "truelog.lag", "enable.auto.commit": False, "enable.partition.eof": True, "log_level": 0}
    )
    try:
        while rest:  # a consumer reads a partition at one offset at a time
            round_ = {(topic, partition): offset for topic, partition, offset in reversed(rest)}
            found |= _first_of(consumer, round_)
            rest = [place for place in rest if round_[place[:2]] != place[2]]
    finally:
        consumer.close()
    return found


def _first_of(consumer: Consumer, at: dict[tuple[str, int], int]) -> dict[Place, float]:
    found: dict[Place, float] = {}
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
        waiting.discard(place)
    if waiting:
        raise ServiceDown(f"Kafka did not give the records at {sorted(waiting)} in time; see `truelog status`.")
    return found
