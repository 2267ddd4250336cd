"""Every record of a topic, byte for byte: as the broker has it, and as the archive has it."""

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from confluent_kafka import Message

from tests.beds.world import World
from tests.scenes.traffic import messages_in_the_log
from truelog.archive.table import identifier, open_catalog

Coordinates = tuple[int, int]
Bytes = tuple[datetime, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]


def in_the_log(world: World, topic: str) -> dict[Coordinates, Bytes]:
    """Every record that the broker has, read independently of the archive."""
    messages = messages_in_the_log(world.settings, topic)
    return {(each.partition() or 0, each.offset() or 0): _bytes(each) for each in messages}


def _bytes(message: Message) -> Bytes:
    time = datetime.fromtimestamp(message.timestamp()[1] / 1000, UTC)
    headers: Any = message.headers() or []
    return time, message.key(), message.value(), tuple(headers)


def in_the_archive(world: World, topic: str) -> dict[Coordinates, Bytes]:
    rows = table(world, topic).to_pylist()
    found = {(row["partition"], row["offset"]): _row(row) for row in rows}
    assert len(found) == len(rows), "a record is archived twice"
    return found


def table(world: World, topic: str) -> pa.Table:
    with open_catalog(world.settings) as catalog:
        return catalog.load_table(identifier(topic)).scan().to_arrow()


def _row(row: dict[str, Any]) -> Bytes:
    headers = tuple((h["key"], h["value"]) for h in row["headers"] or [])
    return row["broker_time"], row["key"], row["value"], headers
