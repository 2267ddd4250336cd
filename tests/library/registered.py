"""Registers the declared event types in a database without Kafka, for tests that need no topics, and forgets them."""

from collections.abc import Iterator
from contextlib import contextmanager

from tests.builders.event_types import an_event_type
from truelog.control import event_store
from truelog.schema.loading.events import load_events
from truelog.storage import bucket
from truelog.storage.database import Connection, connect
from truelog.support.settings import Settings


@contextmanager
def registered(settings: Settings, topic_id: str) -> Iterator[None]:
    """Version 1 of every declared event type is in force from the first offset on, until the end of the block."""
    with connect(settings, autocommit=True) as connection:
        for each in load_events().values():
            an_event_type(connection, each, topic_id)
        yield
        connection.execute("DELETE FROM truelog.event_cut WHERE topic_id = %s", (topic_id,))
        for table in ("event_version", "event_type"):
            connection.execute(
                f"DELETE FROM truelog.{table} WHERE event NOT IN (SELECT event FROM truelog.event_cut)".encode()
            )


def forget(settings: Settings, event: str) -> None:
    """Remove an event type from the registry and its copy from the bucket."""
    with connect(settings) as connection:
        forget_rows(connection, event)
    forget_copies(settings, event)


def forget_rows(connection: Connection, event: str) -> None:
    for table in ("event_cut", "event_version", "event_type"):
        connection.execute(f"DELETE FROM truelog.{table} WHERE event = %s".encode(), (event,))


def forget_copies(settings: Settings, *events: str) -> None:
    for event in events:
        key = f"{event_store.FOLDER}/{event}.json"
        bucket.s3_client(settings).delete_object(Bucket=settings.s3_bucket, Key=key)
