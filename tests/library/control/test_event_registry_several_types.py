"""Event types that are registered together: the guarantees of the registry hold for each of them."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from pydantic import Field, create_model

from tests.deadline import deadline
from tests.library.registered import forget
from truelog.control import event_registry, event_store
from truelog.log import topics
from truelog.log.topics import PartitionOffsets
from truelog.schema import event_version
from truelog.schema.event import Event, EventType, EventTypes, Topic
from truelog.storage import bucket
from truelog.storage.database import connect
from truelog.support import faults
from truelog.support.errors import ServiceDown
from truelog.support.faults import FaultInjectedError
from truelog.support.settings import KafkaUser, Settings

FIRST, SECOND = "remark", "reply"


def declared(name: str, longest: int) -> EventType:
    model = create_model("Remark", __base__=Event, text=(str, Field(max_length=longest)))
    return EventType(name, model, Topic(key=None, subject=(), partitions=2, retention="1 day"))


def declared_both(longest: int) -> list[EventType]:
    return [declared(name, longest) for name in (FIRST, SECOND)]


@pytest.fixture
def both(platform: Settings) -> Iterator[Settings]:
    """A platform with two event types, each with one version and an empty topic."""
    topics.sync_topics(platform, {each.name: each for each in declared_both(20)})
    assert event_registry.register_all(platform, declared_both(20)) == {}
    yield platform
    broker = topics.client(platform, KafkaUser.ADMIN)
    for deleted in broker.delete_topics([FIRST, SECOND]).values():
        deleted.result()
    for name in (FIRST, SECOND):
        forget(platform, name)


def versions(types: EventTypes) -> dict[str, int]:
    return {name: types[name].version for name in (FIRST, SECOND)}


def test_each_has_the_cut_of_its_own_topic(both: Settings) -> None:
    producer = Producer({**both.kafka(), "acks": "all"})
    for _ in range(3):
        producer.produce(SECOND, b"{}", partition=1)
    assert producer.flush(deadline(10)) == 0
    assert event_registry.register_all(both, declared_both(40)) == {}
    types = event_registry.confirmed_types(both)
    cuts = {name: [each.ends for each in types[name].past] for name in (FIRST, SECOND)}
    assert cuts == {FIRST: [{0: 0, 1: 0}], SECOND: [{0: 0, 1: 3}]}
    assert event_registry.types_in_bucket(both) == types


def test_a_refused_one_does_not_hold_up_the_others(both: Settings) -> None:
    """One has no topic, and the bucket has another version of one than the database."""
    copy = event_store.copies(both, SECOND)[SECOND]
    other = event_version.declaration_of(declared(SECOND, 30))
    event_store.write_copies(both, [replace(copy, declarations={1: other})])
    refused = event_registry.register_all(both, [declared("unsent", 40), *reversed(declared_both(40))])
    assert refused.keys() == {"unsent", SECOND}
    assert refused["unsent"].startswith("Kafka has no topic unsent")
    assert "have different versions" in refused[SECOND]
    assert versions(event_registry.event_types(both)) == {FIRST: 2, SECOND: 1}
    assert versions(event_registry.types_in_bucket(both)) == {FIRST: 2, SECOND: 1}


def test_a_topic_without_an_answer_does_not_hold_up_the_others(both: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the broker that leads one of its partitions were down."""
    answered = topics.ends_of_existing

    def unanswered(broker: AdminClient, names: Iterable[str]) -> tuple[PartitionOffsets, dict[str, str]]:
        ends, refused = answered(broker, names)
        return replace(ends, unknown={(FIRST, 1): "a broker is missing"}), refused

    monkeypatch.setattr(topics, "ends_of_existing", unanswered)
    with pytest.raises(ServiceDown, match="a broker is missing"):
        event_registry.register_all(both, declared_both(40))
    assert versions(event_registry.types_in_bucket(both)) == {FIRST: 1, SECOND: 2}


@pytest.mark.parametrize(
    ("fault", "committed"),
    [
        ("registry.before_commit:2:raise", {FIRST: 2, SECOND: 1}),
        ("registry.before_copy:1:raise", {FIRST: 2, SECOND: 2}),
    ],
)
def test_after_a_crash_the_bucket_gets_what_was_committed(
    both: Settings, fault: str, committed: dict[str, int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TRUELOG_FAULT_FIRED", str(tmp_path / "fired"))
    monkeypatch.setattr(faults, "_armed", fault)
    monkeypatch.setattr(faults, "_reached", 0)
    with pytest.raises(FaultInjectedError):
        event_registry.register_all(both, declared_both(40))
    monkeypatch.setattr(faults, "_armed", "")
    assert versions(event_registry.event_types(both)) == committed
    assert versions(event_registry.types_in_bucket(both)) == {FIRST: 1, SECOND: 1}
    assert versions(event_registry.confirmed_types(both)) == committed
    assert versions(event_registry.types_in_bucket(both)) == committed
    assert event_registry.register_all(both, declared_both(40)) == {}
    assert versions(event_registry.types_in_bucket(both)) == {FIRST: 2, SECOND: 2}


def test_they_share_the_lock_and_the_requests(both: Settings) -> None:
    """A platform starts with twenty event types, so one after the other would take seconds."""
    with (
        mock.patch("truelog.control.event_store.connect", wraps=connect) as connections,
        mock.patch.object(topics, "client", wraps=topics.client) as brokers,
        mock.patch.object(bucket, "s3_client", wraps=bucket.s3_client) as clients,
    ):
        assert event_registry.register_all(both, declared_both(40)) == {}
    assert (connections.call_count, brokers.call_count, clients.call_count) == (1, 1, 3)
