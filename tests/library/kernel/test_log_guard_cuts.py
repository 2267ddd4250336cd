"""The guard of a batch before it is read, on a real broker: what it asks about the log, and when it asks nothing."""

import uuid

import pytest
from confluent_kafka import Producer

from tests.builders.views import a_view, merged_to
from tests.deadline import deadline
from tests.library.kernel.zombie import counter
from truelog.kernel.log_guard import LogGuard
from truelog.log import topics
from truelog.log.positions import Positions
from truelog.log.topic_health import TopicGuard
from truelog.storage.database import Connection
from truelog.support.errors import LeaderChanged, ServiceDown
from truelog.support.settings import Settings
from truelog.tables.compiled_view import CompiledView

HERE = ("page_view", 0)
UNKNOWN = 99  # a leader epoch that the broker has never had


@pytest.fixture
def view(connection: Connection) -> CompiledView:
    compiled = counter(f"v{uuid.uuid4().hex[:8]}")
    a_view(connection, compiled.name)
    return compiled


@pytest.fixture
def read(platform: Settings) -> Positions:
    """The end of the only partition that the view has read. It has a record."""
    producer = Producer({**platform.kafka(), "acks": "all"})
    producer.produce("page_view", b"{}", partition=0)
    assert producer.flush(deadline(10)) == 0
    ends = topics.end_offsets(platform, ["page_view"])
    return Positions({"page_view": {0: ends.at(*HERE)}}, ends.ids)


def test_without_a_log_nothing_is_required(connection: Connection, view: CompiledView, read: Positions) -> None:
    guard = LogGuard()
    assert guard.take_epochs(read) is None
    assert guard.before(connection, view, read, None) == {}
    guard.after({HERE: 1}, read)


def test_a_batch_begins_with_the_epochs_that_were_taken(
    platform: Settings, connection: Connection, view: CompiledView, read: Positions
) -> None:
    guard = LogGuard(TopicGuard(platform))
    taken = guard.take_epochs(read)
    assert taken is not None
    assert taken.keys() == {HERE}
    merged_to(connection, view.name, read, leader_epoch=taken[HERE])
    assert guard.before(connection, view, read, taken) == taken
    guard.after(taken, read)
    with pytest.raises(LeaderChanged):
        guard.after({HERE: taken[HERE] + 1}, read)


def test_a_view_from_another_epoch_is_compared_with_the_log(
    platform: Settings, connection: Connection, view: CompiledView, read: Positions
) -> None:
    """The broker does not know the epoch in which the view reached its position, so nothing is proved."""
    guard = LogGuard(TopicGuard(platform))
    merged_to(connection, view.name, read, leader_epoch=UNKNOWN)
    with pytest.raises(ServiceDown, match="does not know where the reader's leader epoch ends"):
        guard.before(connection, view, read, guard.take_epochs(read))


def test_while_kafka_does_not_answer_no_batch_begins(
    platform: Settings, connection: Connection, view: CompiledView, read: Positions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topics, "_TIMEOUT", 0.2)
    guard = LogGuard(TopicGuard(platform.model_copy(update={"kafka_bootstrap": "127.0.0.1:1"})))
    taken = guard.take_epochs(read)
    assert taken is None
    with pytest.raises(ServiceDown, match="Kafka did not answer about the leaders"):
        guard.before(connection, view, read, taken)
