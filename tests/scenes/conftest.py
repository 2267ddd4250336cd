"""A platform with its topics and tables made, its archive running, and traffic at hand."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.scenes.applications import Application, start
from tests.scenes.traffic import Traffic
from truelog import topics
from truelog.database import Connection, connect, migrate
from truelog.event import load_events
from truelog.positions import Positions
from truelog.settings import Settings


@dataclass
class World:
    """What a scene needs to ask: where views stand, and what they hold."""

    settings: Settings
    connection: Connection
    traffic: Traffic

    def ends(self, topic: str = "page_view") -> Positions:
        return topics.end_offsets(self.settings, [topic])

    def stands(self, view: str) -> Positions:
        rows = self.connection.execute(
            "SELECT topic, partition, next_offset FROM truelog.position WHERE view = %s", (view,)
        ).fetchall()
        offsets: dict[str, dict[int, int]] = {}
        for topic, partition, offset in rows:
            offsets.setdefault(str(topic), {})[int(str(partition))] = int(str(offset))
        return Positions(offsets)

    def caught_up(self, view: str) -> bool:
        return self.stands(view).covers(self.ends())

    def counted(self, view: str, column: str) -> int:
        row = self.connection.execute(f"SELECT coalesce(sum({column}), 0)::bigint FROM views.{view}").fetchone()  # type: ignore[arg-type]
        assert row is not None
        return int(str(row[0]))


@pytest.fixture(scope="session")
def world(platform: Settings) -> Iterator[World]:
    migrate(platform)
    topics.apply(platform, load_events())
    with connect(platform, autocommit=True) as connection:
        yield World(platform, connection, Traffic(platform))


@pytest.fixture(scope="session")
def archive(world: World) -> Iterator[Application]:
    running = start(world.settings, "archive.py", TRUELOG_ARCHIVE_TRIGGER_SECONDS="2")
    yield running
    running.die()
