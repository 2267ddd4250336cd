"""A platform with its topics and tables made, its archive running, and traffic and batch work at hand."""

import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from psycopg import sql
from pyspark.sql import SparkSession

from tests.scenes.applications import STARTED, Application, start, unfired
from tests.scenes.batch import Batch
from tests.scenes.traffic import Traffic, good, in_the_log
from truelog.log import topics
from truelog.log.positions import Positions
from truelog.schema.event import load_events
from truelog.storage.database import connect, migrate
from truelog.support.settings import ENVIRONMENT_FILE, Settings
from truelog.views.catalogue import VIEWS


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

    def caught_up(self, view: str, reads: Iterable[str] = ("page_view",)) -> bool:
        return self.stands(view).covers(topics.end_offsets(self.settings, reads))

    def catch_up(self, stream: Application, view: str = "page_views", reads: Iterable[str] = ("page_view",)) -> None:
        """To where the log ended when the stream had begun, whatever else comes in."""
        ends: Positions | None = None

        def there() -> bool:
            nonlocal ends
            if not self.ask("SELECT FROM truelog.lease WHERE pid = %s", stream.process.pid):
                return False
            ends = ends or topics.end_offsets(self.settings, reads)
            return self.stands(view).covers(ends)

        stream.wait(there, 90, f"{view} at the end of the log")

    def counted(self, view: str) -> int:
        query = sql.SQL("SELECT coalesce(sum(views), 0)::bigint FROM {}").format(sql.Identifier("views", view))
        return int(self.ask(query)[0][0])

    def require_each_counted_once(self, view: str = "page_views") -> None:
        values = in_the_log(self.settings)
        assert len(values) >= self.traffic.acknowledged
        assert self.counted(view) == good(values)

    def cut_off(self, application: str) -> None:
        """Take the lease from whoever holds it, as a network that fails would."""
        cut = self.ask(
            "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' "
            "AND (classid::bigint << 32) | objid::bigint = hashtextextended(%s, 0)",
            application,
        )
        assert cut == [(True,)]

    def overtaken(
        self, application: str, points: Sequence[str], suspended: Callable[[str], Application]
    ) -> Application:
        """One suspended at each point, the successor of the one before it, which then wakes up and has to end.

        The last one stands at the last point.
        """
        zombie = suspended(points[0])
        for point in points[1:]:
            self.cut_off(application)
            successor = suspended(point)
            zombie.resume()
            assert zombie.wait_death() != 0
            zombie = successor
        return zombie

    def overtake(self, zombie: Application, view: str, application: str) -> None:
        """It stands still in the middle of a merge; its successor finishes; then it wakes up."""
        zombie.wait_fault()
        self.cut_off(application)
        self.traffic.send(300)
        successor = start(self.settings, "stream.py", "--application", application)
        self.catch_up(successor, view)
        assert successor.end() == 0
        zombie.resume()


@contextmanager
def known(settings: Settings, **more: object) -> Iterator[Settings]:
    """Settings that every process of this home reads, for as long as this lasts."""
    file = settings.home / ENVIRONMENT_FILE
    before = file.read_text()
    file.write_text(before + "".join(f"TRUELOG_{name.upper()}={value}\n" for name, value in more.items()))
    yield settings.model_copy(update=more)
    file.write_text(before)


@pytest.fixture(scope="session")
def world(platform: Settings) -> World:
    migrate(platform)
    topics.apply(platform, load_events())
    return World(platform, Traffic(platform))


@pytest.fixture
def batch(spark: SparkSession, world: World) -> Batch:
    return Batch(spark)


@pytest.fixture(scope="session")
def page_views_alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A catalogue of `page_views` alone."""
    folder = tmp_path_factory.mktemp("page_views_alone")
    shutil.copy(VIEWS / "page_views.py", folder)
    return folder


@pytest.fixture
def one_view(page_views_alone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For scenes that ask about the protocol: each view more costs every start."""
    monkeypatch.setenv("TRUELOG_VIEWS_FOLDER", str(page_views_alone))


@pytest.fixture(autouse=True)
def _nothing_left() -> Iterator[None]:
    """What a failed scene left running would hold the lease of the next one's application; each fault has fired."""
    earlier = len(STARTED)
    yield
    _end(application for application in STARTED if not application.kept)
    assert unfired(STARTED[earlier:]) == []


@pytest.fixture(scope="session")
def archives() -> Iterator[list[Application]]:
    started: list[Application] = []
    yield started
    _end(started)


def _end(applications: Iterable[Application]) -> None:
    for application in applications:
        application.die()


@pytest.fixture
def archive(world: World, archives: list[Application]) -> Application:
    """The archive, running: started again where an earlier scene took its database away."""
    return keep_archiving(world, archives)


def keep_archiving(world: World, archives: list[Application]) -> Application:
    if not archives or archives[-1].process.poll() is not None:
        archives.append(start(world.settings, "archive.py", TRUELOG_ARCHIVE_TRIGGER_SECONDS="2"))
        archives[-1].kept = True
    return archives[-1]
