"""The registry on real services: versions and cuts are recorded in both places before they are used."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pydantic import Field, create_model

from tests.builders.event_types import an_event_version
from tests.builders.log import move_cut
from tests.deadline import deadline, until
from tests.library.advisory_lock import require_waiting
from tests.library.registered import forget, forget_rows
from truelog.control import event_registry, event_store
from truelog.log import topics
from truelog.log.positions import Positions
from truelog.reconcile.reconcile import reconcile_all
from truelog.reconcile.reconcile_result import ReconcileRequest
from truelog.schema import event_version
from truelog.schema.event import Event, EventType, Topic
from truelog.schema.event_version import EventHistory
from truelog.schema.loading.events import load_events
from truelog.spark import early
from truelog.storage import bucket
from truelog.storage.database import connect
from truelog.support import faults
from truelog.support.errors import BadDeclaration, MeaningChanged, RegistryBehind
from truelog.support.faults import FaultInjectedError
from truelog.support.settings import KafkaUser, Settings

NAME = "remark"


def remark(retention: str = "1 day", partitions: int = 2, **fields: Any) -> EventType:
    topic = Topic(key=None, subject=(), partitions=partitions, retention=retention)
    return EventType(NAME, create_model("Remark", __base__=Event, **fields), topic)


SHORT = remark(text=(str, Field(max_length=20)))
LONG = remark(text=(str, Field(max_length=40)))
WIDE = remark(text=(str, Field(max_length=60)))


def delete(settings: Settings) -> None:
    client = topics.client(settings, KafkaUser.ADMIN)
    client.delete_topics([NAME])[NAME].result()


@pytest.fixture
def topic(platform: Settings) -> Iterator[Settings]:
    """A platform with the empty topic of the event type, and without its versions."""
    topics.sync_topics(platform, {NAME: SHORT})
    yield platform
    delete(platform)
    forget(platform, NAME)


def send(settings: Settings, count: int, partition: int = 0) -> None:
    producer = Producer({**settings.kafka(), "acks": "all"})
    for _ in range(count):
        producer.produce(NAME, b"{}", partition=partition)
    assert producer.flush(deadline(10)) == 0


def registered(settings: Settings) -> EventType:
    return event_registry.event_types(settings)[NAME]


def copied(settings: Settings) -> EventType:
    return event_registry.types_in_bucket(settings)[NAME]


def confirmed(settings: Settings) -> EventType:
    return event_registry.confirmed_types(settings)[NAME]


def check(settings: Settings, known: EventType) -> None:
    """What a process does before it writes a batch that ends at the log's end."""
    with connect(settings, autocommit=True) as connection:
        event_registry.require_known(settings, connection, {NAME: known}, topics.end_offsets(settings, [NAME]))


def test_the_first_version_judges_from_the_first_offset(topic: Settings) -> None:
    send(topic, 3)
    assert event_registry.register(topic, SHORT).is_new
    assert (registered(topic).version, registered(topic).past) == (1, ())
    assert not event_registry.register(topic, SHORT).is_new
    check(topic, registered(topic))


def test_a_changed_declaration_judges_from_the_end_of_the_log(topic: Settings) -> None:
    before = event_registry.register(topic, SHORT).event_type
    send(topic, 3, partition=1)
    assert event_registry.register(topic, LONG).event_type.version == 2
    for found in (registered(topic), copied(topic)):
        assert [(each.event_type.version, each.ends) for each in found.past] == [(1, {0: 0, 1: 3})]
    check(topic, before)
    send(topic, 1, partition=1)
    check(topic, registered(topic))
    with pytest.raises(MeaningChanged, match="remark has version 2 in reading 0"):
        check(topic, before)


def test_a_partition_without_a_cut_begins_with_the_version_in_force(topic: Settings) -> None:
    before = event_registry.register(topic, SHORT).event_type
    event_registry.register(topic, LONG)
    topics.sync_topics(topic, {NAME: remark(partitions=3)})
    check(topic, before)
    send(topic, 1, partition=2)
    with pytest.raises(MeaningChanged):
        check(topic, before)


def test_topic_settings_and_quality_make_no_version(topic: Settings) -> None:
    event_registry.register(topic, SHORT)
    assert not event_registry.register(topic, remark("2 days", text=(str, Field(max_length=20)))).is_new
    assert registered(topic).topic.retention == copied(topic).topic.retention == "2 days"


def test_a_recreated_topic_begins_with_the_newest_version(topic: Settings) -> None:
    event_registry.register(topic, SHORT)
    send(topic, 2)
    before = event_registry.register(topic, LONG).event_type
    delete(topic)
    topics.sync_topics(topic, {NAME: LONG})
    send(topic, 1)
    assert not event_registry.register(topic, LONG).is_new
    after = registered(topic)
    assert (after.version, after.past) == (2, ())
    assert after.topic_id != before.topic_id
    with pytest.raises(MeaningChanged):
        check(topic, before)
    check(topic, after)


def test_a_refused_declaration_changes_nothing(topic: Settings) -> None:
    event_registry.register(topic, SHORT)
    number = remark(text=(int, Field()))
    with pytest.raises(BadDeclaration, match=r"remark\.text"):
        event_registry.register(topic, number)
    assert event_registry.register_all(topic, [number]).keys() == {NAME}
    assert registered(topic).version == copied(topic).version == 1


def register_and_fail(settings: Settings, point: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TRUELOG_FAULT_FIRED", str(tmp_path / "fired"))
    monkeypatch.setattr(faults, "_armed", f"{point}:1:raise")
    monkeypatch.setattr(faults, "_reached", 0)
    with pytest.raises(FaultInjectedError):
        event_registry.register(settings, LONG)
    assert (tmp_path / "fired").exists()
    monkeypatch.setattr(faults, "_armed", "")


def test_a_crash_before_the_commit_leaves_the_version_in_force(
    topic: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    before = event_registry.register(topic, SHORT).event_type
    register_and_fail(topic, "registry.before_commit", monkeypatch, tmp_path)
    send(topic, 4)
    check(topic, before)
    assert confirmed(topic).version == copied(topic).version == 1
    after = event_registry.register(topic, LONG).event_type
    assert [each.ends for each in after.past] == [{0: 4, 1: 0}]
    assert [each.ends for each in copied(topic).past] == [{0: 4, 1: 0}]


def test_a_crash_before_the_copy_is_made_good_before_the_version_judges(
    topic: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    before = event_registry.register(topic, SHORT).event_type
    register_and_fail(topic, "registry.before_copy", monkeypatch, tmp_path)
    assert (registered(topic).version, copied(topic).version) == (2, 1)
    send(topic, 4)
    with pytest.raises(MeaningChanged):
        check(topic, before)
    assert confirmed(topic) == registered(topic) == copied(topic)
    assert [each.ends for each in copied(topic).past] == [{0: 0, 1: 0}]


@contextmanager
def restored_to_now(settings: Settings) -> Iterator[None]:
    """Take the database back to its present registry at the end of the block, as a backup from now would."""
    with connect(settings) as connection:
        before = event_registry.histories(connection)[NAME]
    yield
    with connect(settings) as connection:
        forget_rows(connection, NAME)
        event_store._insert_rows(connection, EventHistory(NAME), before)


@pytest.mark.parametrize("cure", ["registration", "restore"])
def test_a_database_from_a_backup_is_refused_until_it_has_the_versions_of_the_bucket(
    topic: Settings, cure: str
) -> None:
    event_registry.register(topic, SHORT)
    send(topic, 2)
    with restored_to_now(topic):
        event_registry.register(topic, LONG)
        newest = event_registry.begin_reading(topic, NAME)
        send(topic, 3)
        check(topic, newest)
    assert (registered(topic).version, registered(topic).reading) == (1, 0)
    with pytest.raises(RegistryBehind, match=f"^{NAME}: .* `truelog archive adopt`"):
        event_registry.confirmed_types(topic)
    if cure == "registration":
        assert not event_registry.register(topic, LONG).is_new
    else:
        assert event_registry.restore(topic, dry_run=True) == [NAME]
        with pytest.raises(RegistryBehind):
            event_registry.confirmed_types(topic)
        assert event_registry.restore(topic) == [NAME]
        assert event_registry.restore(topic) == []
    assert confirmed(topic) == newest == copied(topic)
    check(topic, newest)


def test_versions_that_differ_from_the_bucket_are_refused(topic: Settings) -> None:
    event_registry.register(topic, SHORT)
    with restored_to_now(topic):
        event_registry.register(topic, LONG)
    with connect(topic) as connection:
        other = event_registry.histories(connection)[NAME]
        ends = topics.end_offsets(topic, [NAME])
        forked = event_registry._extended(other, event_version.declaration_of(WIDE), Positions(), ends)
        event_store._insert_rows(connection, other, forked)
    for attempt in (event_registry.confirmed_types, lambda s: event_registry.register(s, WIDE), event_registry.restore):
        with pytest.raises(RegistryBehind, match=f"^{NAME}: "):
            attempt(topic)


def test_a_cut_that_was_changed_by_hand_is_refused(topic: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cut says which version judges a record, for the stream and for every rebuild. No comparison uses this one."""
    event_registry.register(topic, SHORT)
    event_registry.register(topic, LONG)
    with connect(topic) as connection:
        move_cut(connection, NAME, 2, {"0": 1_000})
    with pytest.raises(RegistryBehind, match=f"^{NAME}: "):
        event_registry.confirmed_types(topic)
    monkeypatch.setattr(early, "yield_to_streams", lambda: None)  # it would slow this process down
    with pytest.raises(RegistryBehind, match=f"^{NAME}: "):
        reconcile_all(topic, [], ReconcileRequest(incremental=True))


def test_a_check_waits_for_a_running_registration(topic: Settings) -> None:
    """The order that `require_known` relies on: the end of the batch, the registration's cut, the check."""
    before = event_registry.register(topic, SHORT).event_type
    send(topic, 2)
    with connect(topic) as registering:
        registering.execute("SELECT pg_advisory_xact_lock(hashtext('truelog.event_version'))")
        answers: list[BaseException | None] = []
        end = Positions({NAME: {0: 2}}, {NAME: before.topic_id})

        def checking() -> None:
            try:
                with connect(topic, autocommit=True) as connection:
                    event_registry.require_known(topic, connection, {NAME: before}, end)
                answers.append(None)
            except MeaningChanged as refused:
                answers.append(refused)

        thread = threading.Thread(target=checking)
        thread.start()
        until(lambda: require_waiting(topic), 30, "the check to wait")
        assert answers == []
        an_event_version(registering, NAME, 2, before.topic_id, {0: 1})
    thread.join()
    assert isinstance(answers[0], MeaningChanged)


def test_types_from_files_know_no_version(topic: Settings) -> None:
    event_registry.register(topic, SHORT)
    check(topic, registered(topic))
    send(topic, 1)
    with pytest.raises(MeaningChanged):
        check(topic, SHORT)


def test_every_declared_event_type_can_be_registered(topic: Settings) -> None:
    types = load_events()
    topics.sync_topics(topic, types)
    assert event_registry.register_all(topic, types.values()) == {}
    assert {name: each.fields for name, each in event_registry.event_types(topic).items()}.keys() >= types.keys()
    client = bucket.s3_client(topic)
    keys = {each["Key"] for each in bucket.list_objects(client, topic.s3_bucket, "_events/")}
    assert keys >= {f"_events/{name}.json" for name in types}


def test_the_lock_is_not_held_after_the_check(topic: Settings) -> None:
    event_registry.register(topic, SHORT)
    with connect(topic, autocommit=True) as connection, connect(topic) as other:
        event_registry.require_known(topic, connection, {NAME: registered(topic)}, topics.end_offsets(topic, [NAME]))
        taken = other.execute("SELECT pg_try_advisory_xact_lock(hashtext('truelog.event_version'))").fetchone()
    assert taken == (True,)
