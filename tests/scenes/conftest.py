"""Fixtures for the scenes: a platform with topics and tables, a running archive, traffic, and batch work."""

from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import SparkSession

import runtime
from tests.beds.world import World
from tests.chosen_views import copy_views
from tests.deadline import deadline
from tests.scenes.applications import STARTED, Application, start, unfired
from tests.scenes.batch import Batch
from tests.scenes.site import Site, serving
from tests.scenes.traffic import Traffic
from truelog.support.settings import Settings

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext

SCENE_VIEWS = Path(__file__).parent / "views"


@pytest.fixture(scope="module")
def world(platform: Settings) -> World:
    return World(platform, Traffic(platform))


@pytest.fixture(scope="module")
def site(platform: Settings) -> Iterator[Site]:
    """A site with the tracker, and a collector."""
    with serving(platform) as site:
        runtime.up(platform, ("ticks", "collector"), tethered=True)
        yield site


@pytest.fixture
def context(chromium: "Browser", site: Site) -> Iterator["BrowserContext"]:
    """A new browser for the site, in which no page may have an error."""
    from tests.pages.browsing import collect_page_errors

    context = chromium.new_context(base_url=site.origin, locale="nb-NO")
    context.set_default_timeout(deadline(30_000))
    errors = collect_page_errors(context)
    yield context
    context.close()
    site.attributes = ""
    assert [each for each in chain.from_iterable(errors) if "Failed to load resource" not in each] == []


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
