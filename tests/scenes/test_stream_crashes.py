"""The stream is killed at each named point of its protocol, suspended and overtaken; each record counts once."""

import json
import logging
import os
import shutil
import signal
import time
from functools import partial
from pathlib import Path
from statistics import median

import pytest

import runtime
from tests.scenes import defective_stream
from tests.scenes.applications import Application, start
from tests.scenes.batch import Batch
from tests.scenes.conftest import World, keep_archiving
from tests.scenes.traffic import good, in_the_log
from truelog.catalogue import VIEWS

pytestmark = pytest.mark.usefixtures("one_view")

log = logging.getLogger("truelog.scene")

POINTS = (
    "batch.begun",
    "merge.staged",
    "merge.locked",
    "merge.added",
    "merge.advanced",
    "merge.committed",
)


def suspended(world: World, point: str) -> Application:
    """A stream that stands still in the midst of a batch."""
    world.traffic.send(300)
    zombie = start(world.settings, "stream.py", fault=f"{point}:1:stop")
    zombie.wait_fault()
    return zombie


def overtake(world: World, zombie: Application, view: str, application: str) -> None:
    """The zombie stands still in the middle of a merge; its successor finishes; then it wakes up."""
    zombie.wait_fault()
    world.cut_off(application)
    world.traffic.send(300)
    successor = start(world.settings, "stream.py", "--application", application)
    world.catch_up(successor, view)
    assert successor.end() == 0
    zombie.resume()


def test_killed_at_every_point_of_the_merge(world: World, archive: Application, batch: Batch) -> None:
    """Once even the dead one's checkpoint goes, with the batch that was under way."""
    scratch = world.settings.home / "scratch" / "stream"
    for point in POINTS:
        world.traffic.send(500)
        stream = start(world.settings, "stream.py", fault=f"{point}:1:kill")
        stream.wait_fault()
        stream.wait_death()
        if point == "merge.added":
            assert list(scratch.glob("*/offsets/0"))
            shutil.rmtree(scratch)

    world.traffic.send(500)
    survivor = start(world.settings, "stream.py")
    world.catch_up(survivor)
    assert survivor.end() == 0

    world.require_each_counted_once()
    batch.require_equal_from_raw(["page_views"])


def test_suspended_at_every_point_and_overtaken(world: World, archive: Application, batch: Batch) -> None:
    """Each wakes up while its successor stands at the next point, the last one after its successor has finished.

    Before the merge the zombie holds nothing, within it the view's lock, after it what it wrote is counted.
    """
    zombie = world.overtaken("stream", POINTS, partial(suspended, world))
    overtake(world, zombie, "page_views", "stream")
    assert zombie.wait_death() != 0

    world.require_each_counted_once()
    batch.require_equal_from_raw(["page_views"])


def test_database_and_broker_killed_under_load(
    world: World, archive: Application, archives: list[Application], batch: Batch
) -> None:
    stream = start(world.settings, "stream.py")
    for service in ("postgresql", "kafka"):
        world.traffic.send(2_000)
        world.catch_up(stream)
        world.traffic.send(2_000, flush=False)
        _kill(world, service)
        world.traffic.flush()
        if service == "postgresql":
            for application in (stream, archive):
                application.wait_death()  # without its lease it must not go on; whoever keeps it starts it again
            runtime.up(world.settings, [service], tethered=True)
            stream = start(world.settings, "stream.py")
            keep_archiving(world, archives)
        world.catch_up(stream)
    assert stream.end() == 0

    world.require_each_counted_once()
    batch.require_equal_from_raw(["page_views"])


@pytest.mark.parametrize("defect", defective_stream.DEFECTS)
def test_a_planted_defect_is_seen(
    world: World, archive: Application, defect: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scenes on a copy of the view, with a defect in the application: not every record is counted once."""
    view = f"views_{defect}"
    shutil.copy(VIEWS / "page_views.py", tmp_path / f"{view}.py")
    monkeypatch.setenv("TRUELOG_VIEWS_FOLDER", str(tmp_path))
    monkeypatch.setenv("TRUELOG_APPLICATIONS", json.dumps({view: defect}))
    script = str(Path(defective_stream.__file__))
    world.traffic.send(300)
    if defect == "positions_unchecked":
        zombie = start(world.settings, script, defect, defect, fault="merge.staged:1:stop")
        overtake(world, zombie, view, defect)
        once = good(in_the_log(world.settings))
        zombie.wait(lambda: world.counted(view) > once, 30, "the zombie to write")
    else:
        broken = start(world.settings, script, defect, defect)
        world.catch_up(broken, view)
        world.traffic.send(300)
        world.catch_up(broken, view)
        broken.die()

    with pytest.raises(AssertionError):
        world.require_each_counted_once(view)


def test_a_slow_view_holds_nobody_up_and_catches_up_from_the_log(
    world: World, archive: Application, batch: Batch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It delays neither the one beside it nor one in another application, which is as fresh as it was alone."""
    for view in ("page_views", "quick", "slow"):
        shutil.copy(VIEWS / "page_views.py", tmp_path / f"{view}.py")
    monkeypatch.setenv("TRUELOG_VIEWS_FOLDER", str(tmp_path))
    monkeypatch.setenv("TRUELOG_APPLICATIONS", json.dumps({"quick": "burdened", "slow": "burdened"}))
    monkeypatch.setenv("TRUELOG_BATCH_GRACE_SECONDS", "0.5")
    apart = start(world.settings, "stream.py")
    world.catch_up(apart)
    alone = freshness(world, apart)

    burdened = start(world.settings, str(Path(defective_stream.__file__)), "slow_view", "burdened")
    world.catch_up(burdened, "quick")
    beside = freshness(world, apart)
    world.catch_up(burdened, "quick")
    assert not world.caught_up("slow")
    log.warning("counted after %.1f s, beside an application with a slow view after %.1f s", alone, beside)
    assert beside < alone + 5  # whoever waits for the slow view waits for ten seconds

    world.catch_up(burdened, "slow")
    burdened.die()
    assert apart.end() == 0
    for view in ("page_views", "quick", "slow"):
        world.require_each_counted_once(view)
    batch.require_equal_from_raw(["slow"])


def freshness(world: World, stream: Application) -> float:
    """Seconds from acknowledged to counted, in the middle of five times."""

    def once() -> float:
        world.traffic.send(20)
        acknowledged = time.monotonic()
        world.catch_up(stream)
        return time.monotonic() - acknowledged

    return median(once() for _ in range(5))


def _kill(world: World, service: str) -> None:
    """kill -9; the supervisor starts it again."""
    for state in runtime.status(world.settings):
        if state.name == service:
            assert state.pid is not None
            os.kill(state.pid, signal.SIGKILL)
            return
    raise AssertionError(f"{service} does not run")
