"""The reader of the folds on the real log: an event type that is not registered, and is registered later."""

import json
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from threading import Event as Flag
from threading import Thread
from typing import Any

import pytest
from pydantic import Field

from tests.deadline import until
from truelog import Event, Topic
from truelog.commands.catalogue import Catalogue
from truelog.commands.claims import CLAIM
from truelog.commands.declaration import Command, Decision, Fields, Fold, NewEvent, Payload, State
from truelog.commands.folding import fold_reader
from truelog.commands.folding.fold_positions import confirm
from truelog.commands.folding.fold_reader import FoldReader
from truelog.commands.folding.states import KeyName, read_logged
from truelog.control import event_registry
from truelog.log import topics
from truelog.log.kafka_producer import KafkaSender, OutgoingRecord
from truelog.schema.event import EventType
from truelog.storage.database import connect
from truelog.support.errors import ServiceDown
from truelog.support.settings import KafkaUser, Settings

LATE = "parcel"


class Parcel(Event):
    """A parcel."""

    parcel_id: str = Field(max_length=50)
    weight: int


class Send(Fields):
    """The fields of the command."""

    parcel_id: str


def apply(parcel: State, event: Payload) -> State:
    return {"weight": parcel.get("weight", 0) + event["weight"]}


def decide(state: State, command: Any) -> Decision:
    return [NewEvent(LATE, {"parcel_id": command.parcel_id, "weight": 1})]


COMMANDS = Catalogue({"send": Command(Send, Fold(LATE, apply), lambda command: str(command.parcel_id), decide)})
TYPE = EventType(LATE, Parcel, Topic("parcel_id", (), 1, "7 days"))


@contextmanager
def reading(settings: Settings) -> Iterator[None]:
    """Read as the service does: another reader begins where one has ended."""
    stopped = Flag()

    def read() -> None:
        while not stopped.is_set():
            FoldReader(settings, COMMANDS).run(stopped)

    thread = Thread(target=read)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()


def send(settings: Settings, topic: str, key: str, user: KafkaUser = KafkaUser.PRODUCER, **payload: object) -> None:
    envelope = {"event_id": str(uuid.uuid4()), "occurred_at": "2026-11-25T10:00:00Z"}
    with KafkaSender(settings, [topic], user) as sender:
        sender.send(OutgoingRecord(topic, key, json.dumps(envelope | payload).encode()))


def wait_for(settings: Settings, name: KeyName, state: Mapping[str, object]) -> None:
    def require() -> None:
        with connect(settings) as connection:
            found = read_logged(connection, [name]).get(name)
        if found is None or found.state != state:
            raise ServiceDown(f"the state is {found}")

    until(require, 30, f"the state {state}")


def test_an_event_type_that_is_not_registered_stops_no_other_fold(
    platform: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fold_reader, "_CHECK_SECONDS", 0.2)
    with reading(platform):
        send(platform, CLAIM, "a", KafkaUser.RELAY, name="a", verb="claimed", holder="ann")
        wait_for(platform, KeyName(CLAIM, "a"), {"holder": "ann"})
        topics.sync_topics(platform, {LATE: TYPE})
        event_registry.register(platform, TYPE)
        send(platform, LATE, "p1", parcel_id="p1", weight=50)
        wait_for(platform, KeyName(LATE, "p1"), {"weight": 50})
        with connect(platform, autocommit=True) as connection:
            assert confirm(connection, platform, COMMANDS, [CLAIM, LATE]).keys() == {CLAIM, LATE}
