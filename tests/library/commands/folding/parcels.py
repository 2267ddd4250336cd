"""Folds of parcels on the real log, and the service that reads them."""

import json
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
from pydantic import Field

from tests.deadline import until
from tests.meanwhile import meanwhile
from truelog import Event, Topic
from truelog.commands import catalogue
from truelog.commands.catalogue import Catalogue
from truelog.commands.declaration import Command, Decision, Fields, Fold, NewEvent, Payload, State
from truelog.commands.folding.confirmation import Confirmation
from truelog.commands.folding.states import KeyName, KeyState, read_logged
from truelog.commands.request import CommandRequest, Sender, parse
from truelog.control import event_registry
from truelog.log import topics
from truelog.log.kafka_producer import KafkaSender, OutgoingRecord
from truelog.schema.event import EventType
from truelog.services.commands import service
from truelog.storage.database import connect
from truelog.support.errors import ServiceDown
from truelog.support.settings import KafkaUser, Settings


class Light(Event):
    """A parcel in its first version."""

    parcel_id: str = Field(max_length=50)
    weight: int = Field(le=100)


class Lighter(Event):
    """A parcel in its second version."""

    parcel_id: str = Field(max_length=50)
    weight: int = Field(le=10)


class Send(Fields):
    """The fields of the command."""

    parcel_id: str


def add_weight(parcel: State, event: Payload) -> State:
    return {"weight": parcel.get("weight", 0) + event["weight"]}


def commands_on(event: str, apply: Callable[[State, Payload], State] = add_weight) -> Catalogue:
    """One command, which sends a parcel of this event type."""

    def decide(_: State, command: Any) -> Decision:
        return [NewEvent(event, {"parcel_id": command.parcel_id, "weight": 1})]

    return Catalogue({"send": Command(Send, Fold(event, apply), lambda command: str(command.parcel_id), decide)})


def sending(commands: Catalogue, parcel: str = "p1") -> CommandRequest:
    return parse(commands, "send", json.dumps({"parcel_id": parcel}).encode(), Sender("shop"))


def declared(name: str, model: type[Event] = Light) -> EventType:
    return EventType(name, model, Topic("parcel_id", (), 1, "7 days"))


def register(settings: Settings, name: str) -> str:
    topics.sync_topics(settings, {name: declared(name)})
    event_registry.register(settings, declared(name))
    return name


@contextmanager
def reading(settings: Settings, commands: Catalogue, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The service reads and publishes meanwhile."""
    monkeypatch.setattr(catalogue, "load", lambda: commands)
    with meanwhile(partial(service.run, settings)):
        yield


def send(settings: Settings, topic: str, key: str, user: KafkaUser = KafkaUser.PRODUCER, **payload: object) -> None:
    envelope = {"event_id": str(uuid.uuid4()), "occurred_at": "2026-11-25T10:00:00Z"}
    with KafkaSender(settings, [topic], user) as sender:
        sender.send(OutgoingRecord(topic, key, json.dumps(envelope | payload).encode()))


def confirmed(settings: Settings, commands: Catalogue, *events: str) -> Confirmation:
    """A confirmation that began now, once it has confirmed the states of these event types."""
    confirmation = Confirmation(settings, commands)

    def require() -> None:
        confirmation.look()
        if reasons := confirmation.missing(events):
            raise ServiceDown(f"{reasons}")

    until(require, 60, "confirmed states")
    return confirmation


def state_of(settings: Settings, event: str, key: str) -> KeyState:
    """The state that the log says."""
    with connect(settings) as connection:
        return read_logged(connection, [KeyName(event, key)]).get(KeyName(event, key), KeyState({}, 0))
