"""Fixtures for the scenes: a platform with topics and tables, a running archive, traffic, and batch work."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.beds.world import World
from tests.chosen_views import copy_views
from tests.scenes.applications import STARTED, Application, start, unfired
from tests.scenes.batch import Batch
from tests.scenes.traffic import Traffic
from truelog.support.settings import Settings

SCENE_VIEWS = Path(__file__).parent / "views"


@pytest.fixture(scope="module")
def world(platform: Settings) -> World:
    return World(platform, Traffic(platform))


@pytest.fixture
def batch(spark: SparkSession, world: World) -> Batch:
    return Batch(spark)


@pytest.fixture(scope="session")
def only_page_views(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A views folder with only `page_views`."""
    return copy_views(tmp_path_factory.mktemp("only_page_views"), "page_views")


@pytest.fixture
def one_view(only_page_views: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For scenes with `page_views` alone."""
    monkeypatch.setenv("TRUELOG_VIEWS_FOLDER", str(only_page_views))


@pytest.fixture
def each_event(monkeypatch: pytest.MonkeyPatch) -> None:
    """For scenes about the protocol: the only view counts each event under its id."""
    monkeypatch.setenv("TRUELOG_VIEWS_FOLDER", str(SCENE_VIEWS))


@pytest.fixture(autouse=True)
def _no_application_is_left() -> Iterator[None]:
    """End applications left by a failed scene, which hold the next scene's lease. Require that each fault fired."""
    earlier = len(STARTED)
    yield
    _end(application for application in STARTED if not application.kept)
    assert unfired(STARTED[earlier:]) == []


@pytest.fixture(scope="module")
def archives() -> Iterator[list[Application]]:
    started: list[Application] = []
    yield started
    _end(started)


def _end(applications: Iterable[Application]) -> None:
    for application in applications:
        application.die()


@pytest.fixture
def archive(world: World, archives: list[Application]) -> Application:
    """The running archive, restarted if an earlier scene killed its database."""
    return keep_archiving(world, archives)


@pytest.fixture
def no_archive(archives: list[Application]) -> None:
    """For scenes that start an archive of their own: only one archive can run."""
    _end(archives)


def keep_archiving(world: World, archives: list[Application]) -> Application:
    if not archives or archives[-1].process.poll() is not None:
        archives.append(start(world.settings, "archive.py", TRUELOG_ARCHIVE_TRIGGER_SECONDS="2"))
        archives[-1].kept = True
    return archives[-1]
