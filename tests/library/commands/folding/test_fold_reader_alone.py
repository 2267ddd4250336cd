"""Each fold is read alone: an event type without states, a log that is not archived, and a fold that fails."""

import logging
import threading
import uuid
from collections.abc import Callable

import pytest
from confluent_kafka import TopicPartition

from tests.deadline import deadline, until
from tests.deleted_records import delete_records
from tests.library.commands.decisions import claim, require_accepted
from tests.library.commands.folding.parcels import commands_on, confirmed, reading, register, send, sending, state_of
from truelog.commands.catalogue import Catalogue
from truelog.commands.claims import CLAIM
from truelog.commands.decider import Decider
from truelog.commands.decision import ACCEPTED
from truelog.commands.declaration import Payload, State
from truelog.commands.folding import fold_reader
from truelog.commands.folding.fold_positions import delete_withdrawn
from truelog.commands.folding.fold_reader import FoldReader
from truelog.commands.folding.states import KeyName, KeyState, lock_keys
from truelog.control import event_registry
from truelog.control.command_states import withdraw
from truelog.log import topics
from truelog.storage.database import Connection, connect
from truelog.support.errors import ServiceDown
from truelog.support.settings import KafkaUser, Settings


def claimed_by_ann(settings: Settings, name: str) -> None:
    send(settings, CLAIM, name, KafkaUser.RELAY, name=name, verb="claimed", holder="ann")


def test_an_event_type_that_is_not_registered_stops_no_other_fold(
    platform: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    late, commands = "late_parcel", commands_on("late_parcel")
    claimed_by_ann(platform, "a")
    with reading(platform, commands, monkeypatch):
        confirmed(platform, commands, CLAIM)
        assert state_of(platform, CLAIM, "a").state == {"holder": "ann"}
        register(platform, late)
        send(platform, late, "p1", parcel_id="p1", weight=50)
        confirmed(platform, commands, CLAIM, late)
        assert state_of(platform, late, "p1") == KeyState({"weight": 50}, 1)


def drop(settings: Settings, topic: str) -> None:
    delete_records(topics.client(settings, KafkaUser.ADMIN), TopicPartition(topic, 0, 1))


def break_down(_: State, event: Payload) -> State:
    raise KeyError(event["parcel_id"])


@pytest.mark.parametrize(
    ("spoil", "cause"),
    [(drop, "no record of {} is archived yet"), (None, "the fold of {} failed on an event: KeyError")],
    ids=["a log that is not archived", "a fold that fails"],
)
def test_a_fold_that_cannot_be_read_stops_no_other(
    platform: Settings,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    spoil: Callable[[Settings, str], None] | None,
    cause: str,
) -> None:
    """Another fold is read, confirmed by a new session, and decided on in the same batch."""
    caplog.set_level(logging.WARNING)
    parcel = register(platform, f"parcel_{uuid.uuid4().hex[:8]}")
    send(platform, parcel, "p1", parcel_id="p1", weight=1)
    if spoil is not None:
        spoil(platform, parcel)
    commands = commands_on(parcel, break_down)
    name = f"n{uuid.uuid4().hex[:12]}"
    with reading(platform, commands, monkeypatch):
        until(lambda: require_logged(caplog, cause.format(parcel)), 60, "the failure of the fold")
        claimed_by_ann(platform, name)
        confirmed(platform, commands, CLAIM)
        assert state_of(platform, CLAIM, name).state == {"holder": "ann"}
        decider = Decider(platform, commands, lambda: event_registry.event_types(platform))
        until(lambda: require_accepted(decider, claim("bob", f"{name}b")), 30, "the states of claims")
        refused, accepted = decider.submit(sending(commands)), decider.submit(claim("eve", f"{name}e"))
        until(lambda: require_decided(decider, accepted.done), 30, "the decision")
    decider.stop()
    assert accepted.result(0).status == ACCEPTED
    with pytest.raises(ServiceDown, match=f"^{parcel} has not been read to the end"):
        refused.result(0)


def test_the_service_ends_while_it_waits_for_a_state_that_it_must_delete(
    platform: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A decision has locked a state that was withdrawn. The next service deletes it and begins the fold again."""
    parcel, deleting = register(platform, f"parcel_{uuid.uuid4().hex[:8]}"), threading.Event()

    def delete(connection: Connection, event: str, stopped: threading.Event) -> None:
        if event == parcel:
            deleting.set()
        delete_withdrawn(connection, event, stopped)

    monkeypatch.setattr(fold_reader, "delete_withdrawn", delete)
    commands = commands_on(parcel)
    send(platform, parcel, "p1", parcel_id="p1", weight=1)
    with reading(platform, commands, monkeypatch):
        confirmed(platform, commands, parcel)
    with connect(platform, autocommit=True) as holder, connect(platform, autocommit=True) as other:
        with holder.transaction():  # which fails at its end if the session was ended meanwhile
            lock_keys(holder, [KeyName(parcel, "p1")])
            withdraw(other, [parcel])
            with reading(platform, commands, monkeypatch):
                assert deleting.wait(deadline(30))
        assert state_of(platform, parcel, "p1").state == {"weight": 1}, "the state was deleted"
    with reading(platform, commands, monkeypatch):
        confirmed(platform, commands, parcel)
    assert state_of(platform, parcel, "p1").state == {"weight": 1}


def test_the_relay_hurries_the_reader_of_the_event_alone(platform: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    parcel, other = (register(platform, f"parcel_{uuid.uuid4().hex[:8]}") for _ in range(2))
    hurried, is_hurried = set[str](), threading.Event()

    def hurry(reader: FoldReader) -> None:
        hurried.add(reader._event)
        if parcel in hurried:
            is_hurried.set()

    monkeypatch.setattr(FoldReader, "hurry", hurry)
    commands = Catalogue({**commands_on(parcel).commands, "send_other": commands_on(other).commands["send"]})
    with reading(platform, commands, monkeypatch):
        confirmed(platform, commands, parcel, other)
        decider = Decider(platform, commands, lambda: event_registry.event_types(platform))
        until(lambda: require_accepted(decider, sending(commands)), 30, "the states of parcels")
        assert is_hurried.wait(deadline(30))
    decider.stop()
    assert other not in hurried


def require_logged(caplog: pytest.LogCaptureFixture, cause: str) -> None:
    if cause not in caplog.text:
        raise ServiceDown("the fold has not failed yet")


def require_decided(decider: Decider, is_done: Callable[[], bool]) -> None:
    decider.work()
    if not is_done():
        raise ServiceDown("nothing is decided yet")
