"""Registered event types, without a broker and without a bucket."""

from collections.abc import Mapping
from datetime import timedelta

from psycopg.types.json import Jsonb

from tests.builders.rows import before_now, insert, insert_missing
from truelog.schema import event_version
from truelog.schema.event import EventType
from truelog.storage.database import Connection


def an_event_type(connection: Connection, event: EventType, topic_id: str) -> None:
    """Version 1 of an event type, which judges a topic from its first offsets, and perhaps other topics too."""
    insert_missing(connection, "event_type", event=event.name, settings=Jsonb(event_version.settings_of(event)))
    declaration = Jsonb(event_version.declaration_of(event))
    insert_missing(connection, "event_version", event=event.name, version=1, declaration=declaration)
    _cut(connection, event.name, 1, topic_id, {})


def an_event_version(connection: Connection, event: str, version: int, topic_id: str, cut: Mapping[int, int]) -> None:
    """A version of a registered event type, with an empty declaration, which judges a topic from its cut."""
    insert(connection, "event_version", event=event, version=version, declaration=Jsonb({}))
    _cut(connection, event, version, topic_id, cut)


def other_settings(connection: Connection, event: EventType) -> None:
    """The settings of a registered event type, which make no version."""
    settings = Jsonb(event_version.settings_of(event))
    connection.execute("UPDATE truelog.event_type SET settings = %s WHERE event = %s", (settings, event.name))


def no_event_types(connection: Connection) -> None:
    """An empty registry, as in the middle of a restore."""
    connection.execute("TRUNCATE truelog.event_cut, truelog.event_version, truelog.event_type CASCADE")


def a_reading(connection: Connection, event: str, ago: timedelta, reading: int, version: int = 1) -> None:
    """A version of an event type, which began some time ago in this reading."""
    insert_missing(connection, "event_type", event=event, settings=Jsonb({}))
    insert_missing(connection, "event_version", event=event, version=version, declaration=Jsonb({}))
    insert(
        connection,
        "event_cut",
        event=event,
        topic_id="id",
        reading=reading,
        version=version,
        first_offsets=Jsonb({}),
        made_at=before_now(ago),
    )


def _cut(connection: Connection, event: str, version: int, topic_id: str, cut: Mapping[int, int]) -> None:
    offsets = Jsonb({str(partition): offset for partition, offset in cut.items()})
    place = {"event": event, "topic_id": topic_id, "reading": 0, "version": version}
    insert(connection, "event_cut", **place, first_offsets=offsets)
