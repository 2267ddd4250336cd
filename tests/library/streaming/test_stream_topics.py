"""The topics of a stream: which changes make an application plan again, on a real broker."""

import uuid

from confluent_kafka.admin import NewPartitions
from confluent_kafka.cimpl import NewTopic

from tests.deadline import until
from truelog.log import topics
from truelog.storage.database import Connection
from truelog.streaming.stream_topics import StreamTopics
from truelog.support.errors import ServiceDown
from truelog.support.settings import KafkaUser, Settings


def test_partitions_that_were_added_are_a_change(platform: Settings, connection: Connection) -> None:
    name, broker = f"growing_{uuid.uuid4().hex[:8]}", topics.client(platform, KafkaUser.ADMIN)
    broker.create_topics([NewTopic(name, 2)])[name].result()
    watched = StreamTopics(platform, "growth")
    until(lambda: _require(name in watched.examine([name], {}).earliest.ids), 10, "the topic")
    assert watched.changed() == ""
    broker.create_partitions([NewPartitions(name, 3)])[name].result()
    until(lambda: _require(watched.changed() == f"{name}: has 3 partitions now"), 10, "the partition")
    watched.examine([name], {})
    assert watched.changed() == ""


def _require(reached: bool) -> None:
    if not reached:
        raise ServiceDown("the broker's metadata is not current")
