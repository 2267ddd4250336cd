"""A platform with its topics and tables made, its archive running, and traffic at hand."""

import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from psycopg import sql

from tests.scenes.applications import STARTED, Application, start
from tests.scenes.traffic import Traffic
from truelog import topics
from truelog.catalogue import VIEWS
from truelog.database import connect, migrate
from truelog.event import load_events
from truelog.positions import Positions
from truelog.settings import Settings


@dataclass
class World:
    """What a scene needs to ask: where views stand, and what they hold."""

    settings: Settings
    traffic: Traffic

    def ask(self, query: str | sql.Composed, *parameters: object) -> list[tuple[Any, ...]]:
        """On a connection of its own: scenes kill databases."""
        with connect(self.settings, autocommit=True) as connection:
            return connection.execute(query, parameters).fetchall()

    def stands(self, view: str) -> Positions:
        rows = self.ask("SELECT topic, partition, next_offset FROM truelog.position WHERE view = %s", view)
        offsets: dict[str, dict[int, int]] = {}
        for topic, partition, offset in rows:
            offsets.setdefault(topic, {})[partition] = offset
        return Positions(offsets)

    def caught_up(self, view: str) -> bool:
        return self.stands(view).covers(topics.end_offsets(self.settings, ["page_view"]))

    def counted(self, view: str) -> int:
        query = sql.SQL("SELECT coalesce(sum(views), 0)::bigint FROM {}").format(sql.Identifier("views", view))
        return int(self.ask(query)[0][0])


@pytest.fixture(scope="session")
def world(platform: Settings) -> World:
    migrate(platform)
    topics.apply(platform, load_events())
    return World(platform, Traffic(platform))


@pytest.fixture
def one_view(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A catalogue of `page_views` alone, for scenes that ask about the protocol: each view more costs every start."""
    folder = tmp_path / "views"
    folder.mkdir()
    shutil.copy(VIEWS / "page_views.py", folder)
    monkeypatch.setenv("TRUELOG_VIEWS_FOLDER", str(folder))


@pytest.fixture(autouse=True)
def _nothing_left() -> Iterator[None]:
    """What a failed scene left running would hold the lease of the next one's application."""
    yield
    _end(application for application in STARTED if not application.kept)


@pytest.fixture(scope="session")
def _archives() -> Iterator[list[Application]]:
    started: list[Application] = []
    yield started
    _end(started)


def _end(applications: Iterable[Application]) -> None:
    for application in applications:
        application.die()


@pytest.fixture
def archive(world: World, _archives: list[Application]) -> Application:
    """The archive, running: started again where an earlier scene took its database away."""
    if not _archives or _archives[-1].process.poll() is not None:
        _archives.append(start(world.settings, "archive.py", TRUELOG_ARCHIVE_TRIGGER_SECONDS="2"))
        _archives[-1].kept = True
    return _archives[-1]
