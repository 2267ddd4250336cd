"""The time of the newest tick, from which the guard of a new process begins, among records of other forms."""

import json
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.deadline import deadline
from tests.deleted_records import delete_records
from tests.laws.naive_clock import START
from truelog.log.clock_guard import newest_tick
from truelog.schema.event import FUTURE_LIMIT
from truelog.schema.loading.events import load_events
from truelog.support.settings import Settings

SECOND = timedelta(seconds=1)
MARGIN = timedelta(minutes=1)  # by which the clocks of this process and of the broker may differ


@dataclass
class Ticks:
    """A topic of ticks."""

    settings: Settings
    topic: str

    def send(self, *values: bytes | None) -> None:
        producer = Producer({**self.settings.kafka(), "acks": "all"})
        for value in values:
            producer.produce(self.topic, value, partition=0)
        assert producer.flush(deadline(30)) == 0

    def newest(self) -> datetime | None:
        return newest_tick(self.settings, replace(load_events()["ticks"], name=self.topic))


@pytest.fixture
def ticks(kafka: Settings) -> Ticks:
    topic = f"ticks_{uuid.uuid4().hex[:8]}"
    made = NewTopic(topic, 1, 1, config={"message.timestamp.type": "LogAppendTime"})
    admin = AdminClient(kafka.kafka())
    admin.create_topics([made])[topic].result(deadline(30))
    return Ticks(kafka, topic)


def tick(time: datetime, ends: object = "{}") -> bytes:
    return json.dumps({"event_id": "t", "occurred_at": time.isoformat(), "ends": ends}).encode()


def times(seconds: Iterable[int]) -> list[bytes]:
    return [tick(START + each * SECOND) for each in seconds]


def test_an_empty_topic_has_none_and_one_tick_is_the_newest(ticks: Ticks) -> None:
    assert ticks.newest() is None
    ticks.send(tick(START))
    assert ticks.newest() == START


def test_the_newest_tick_has_the_latest_time(ticks: Ticks) -> None:
    ticks.send(*times([1, 9, 5]))
    assert ticks.newest() == START + 9 * SECOND


def test_records_that_are_no_ticks_do_not_count(ticks: Ticks) -> None:
    now = datetime.now(UTC)
    hostile = [None, b"", b"{", tick(now, ends="[]"), tick(now + FUTURE_LIMIT + MARGIN), tick(now, ends=1)]
    ticks.send(*hostile)
    assert ticks.newest() is None
    ticks.send(tick(START), *hostile)
    assert ticks.newest() == START


def test_a_tick_may_be_a_little_ahead_of_the_broker(ticks: Ticks) -> None:
    ahead = datetime.now(UTC).replace(microsecond=0) + FUTURE_LIMIT - MARGIN
    ticks.send(tick(ahead))
    assert ticks.newest() == ahead


def test_only_the_last_hundred_records_are_read(ticks: Ticks) -> None:
    ticks.send(*times([1_000, *range(99)]))
    assert ticks.newest() == START + 1_000 * SECOND
    ticks.send(*times([99]))
    assert ticks.newest() == START + 99 * SECOND


def test_records_that_retention_has_removed_are_not_asked_for(ticks: Ticks) -> None:
    ticks.send(*times([7, 8, 2, 1]))
    delete_records(AdminClient(ticks.settings.kafka()), TopicPartition(ticks.topic, 0, 2))
    assert ticks.newest() == START + 2 * SECOND
