"""A release with a broken view and a changed view. Both views stall with a reason, and the other view continues."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.beds.world import World
from tests.builders.views import forget
from tests.scenes.applications import start
from truelog.control import application, view_status
from truelog.control.application import Diagnosis, diagnose_status
from truelog.control.view_status import ViewStatus
from truelog.storage.database import connect

VIEW = '''"""Counts by {by}."""
from pyspark.sql import DataFrame, functions as F
from truelog import Sum, View

def transform(page_views: DataFrame) -> DataFrame:
    return page_views.select(F.col("{by}").alias("what"), F.lit(1).alias("n"))

VIEW = View(reads=("page_view",), transform=transform, key=("what",), measures={{"n": Sum()}})
'''
NAMES = ("release_good", "release_broken", "release_changed")


@pytest.fixture
def folder(world: World, tmp_path: Path) -> Iterator[Path]:
    for name in NAMES:
        (tmp_path / f"{name}.py").write_text(VIEW.format(by="status"))
    yield tmp_path
    with connect(world.settings) as connection:
        forget(connection, *NAMES)


def statuses(world: World) -> dict[str, ViewStatus]:
    with connect(world.settings) as connection:
        return {each.view: each for each in view_status.view_statuses(connection)}


@pytest.mark.nightly
def test_only_broken_and_changed_views_are_stalled(world: World, folder: Path) -> None:
    """The application starts, a release changes view files, and the application restarts."""
    given = {"TRUELOG_VIEWS_FOLDER": str(folder)}
    first = start(world.settings, "stream.py", **given)
    first.wait(lambda: _states(world) == dict.fromkeys(NAMES, "UP_TO_DATE"), 90, "all views to be up to date")
    assert first.end() == 0

    (folder / "release_changed.py").write_text(VIEW.format(by="language"))
    (folder / "release_broken.py").write_text("import missing_module\n")
    _released(world, folder)
    with connect(world.settings) as connection:
        now = application.load_status(connection, "stream")
    assert now.code_wanted != now.code_running

    second = start(world.settings, "stream.py", **given)
    second.wait(lambda: "STALLED" in _states(world).values(), 90, "a stalled view")
    world.traffic.send(20)
    second.wait(lambda: world.caught_up("release_good"), 60, "the good view to catch up")
    found = statuses(world)
    assert _states(world) == dict(zip(NAMES, ("UP_TO_DATE", "STALLED", "STALLED"), strict=True))
    assert "No module named 'missing_module'" in found["release_broken"].reason
    assert "Bump `version`" in found["release_changed"].reason
    with connect(world.settings) as connection:
        now = application.load_status(connection, "stream")
    assert now.batch_at is not None
    assert (
        diagnose_status(now, application.silence_limits(world.settings, "stream"), now.batch_at)
        is not Diagnosis.CHANGED
    )
    assert second.end() == 0
    assert _states(world) == dict(zip(NAMES, ("STOPPED", "STALLED", "STALLED"), strict=True))


def _released(world: World, folder: Path) -> None:
    ran = start(world.settings, "release.py", TRUELOG_VIEWS_FOLDER=str(folder))
    assert ran.wait_death(90) == 0, ran.tail()


def _states(world: World) -> dict[str, str]:
    return {view: status.state for view, status in statuses(world).items() if view in NAMES}
