"""The stream is killed, or suspended and overtaken, at each named point of its protocol. Each record counts once."""

import os
import shutil
import signal
from functools import partial

import pytest

import runtime
from tests.scenes.applications import Application, start
from tests.scenes.batch import Batch
from tests.scenes.conftest import EACH_EVENT, World, keep_archiving

pytestmark = pytest.mark.usefixtures("each_event")

POINTS = (
    "batch.begun",
    "merge.staged",
    "merge.locked",
    "merge.added",
    "merge.advanced",
    "merge.committed",
)


def suspended(world: World, point: str) -> Application:
    """A stream that is suspended in the middle of a batch."""
    world.traffic.send(300)
    zombie = start(world.settings, "stream.py", fault=f"{point}:1:stop")
    zombie.wait_fault()
    return zombie


def test_killed_at_every_point_of_the_merge(world: World, archive: Application, batch: Batch) -> None:
    """After one of the kills, the checkpoint and its unfinished batch are deleted too."""
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
    world.catch_up(survivor, EACH_EVENT)
    assert survivor.end() == 0

    world.require_each_counted_once()
    batch.require_equal_from_raw([EACH_EVENT])


def test_suspended_at_every_point_and_overtaken(world: World, archive: Application, batch: Batch) -> None:
    """Each stream wakes up while its successor is suspended at the next point, the last after its successor has ended.

    Before the merge, the zombie holds no lock. During the merge, it holds the view's lock. After the merge, its rows
    are already counted.
    """
    zombie = world.overtaken("stream", POINTS, partial(suspended, world))
    world.overtake(zombie, EACH_EVENT, "stream")
    assert zombie.wait_death() != 0

    world.require_each_counted_once()
    batch.require_equal_from_raw([EACH_EVENT])


def test_database_and_broker_killed_under_load(
    world: World, archive: Application, archives: list[Application], batch: Batch
) -> None:
    stream = start(world.settings, "stream.py")
    for service in ("postgresql", "kafka"):
        world.traffic.send(2_000)
        world.catch_up(stream, EACH_EVENT)
        world.traffic.send(2_000, flush=False)
        _kill(world, service)
        world.traffic.flush()
        if service == "postgresql":
            for application in (stream, archive):
                application.wait_death()  # an application without a lease must end; Airflow would restart it
            runtime.up(world.settings, [service], tethered=True)
            stream = start(world.settings, "stream.py")
            keep_archiving(world, archives)
        world.catch_up(stream, EACH_EVENT)
    assert stream.end() == 0

    world.require_each_counted_once()
    batch.require_equal_from_raw([EACH_EVENT])


def _kill(world: World, service: str) -> None:
    """Kill a service; the supervisor restarts the service."""
    for state in runtime.status(world.settings):
        if state.name == service:
            assert state.pid is not None
            os.kill(state.pid, signal.SIGKILL)
            return
    raise AssertionError(f"{service} is not running")
