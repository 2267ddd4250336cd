"""The event types that a service knows: loaded again after each registration, and only then."""

from dataclasses import replace

import pytest

from tests.builders.event_types import an_event_type, other_settings
from truelog.control import event_registry
from truelog.control.event_registry import KnownTypes
from truelog.schema.event import EventTypes
from truelog.schema.loading.events import load_events
from truelog.storage.database import Connection
from truelog.support.errors import NotSetUp
from truelog.support.settings import Settings


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of types of all loads."""
    found, load_types = list[int](), event_registry.load_types

    def load(connection: Connection) -> EventTypes:
        types = load_types(connection)
        found.append(len(types))
        return types

    monkeypatch.setattr(event_registry, "load_types", load)
    return found


def test_types_are_loaded_again_after_each_registration(
    postgresql: Settings, connection: Connection, loads: list[int]
) -> None:
    known, declared = KnownTypes(postgresql), load_events()
    for _ in range(2):
        with pytest.raises(NotSetUp):
            known.load()
    an_event_type(connection, declared["page_view"], "one")
    assert [*known.load()] == [*known.load()] == ["page_view"]
    an_event_type(connection, declared["tweet"], "two")
    assert [*known.load()] == [*known.load()] == ["page_view", "tweet"]
    assert loads == [1, 2]

    longer = replace(declared["tweet"], topic=replace(declared["tweet"].topic, retention="99 days"))
    other_settings(connection, longer)
    assert known.load()["tweet"].topic.retention == known.load()["tweet"].topic.retention == "99 days"
    assert loads == [1, 2, 2]
