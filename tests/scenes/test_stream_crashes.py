"""The stream is killed, or suspended and overtaken, at each named point of its protocol. Each record counts once."""

import logging
import os
import shutil
import signal
import time
from collections.abc import Sequence
from functools import partial

import psycopg
import pytest
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

import runtime
from tests.beds.world import EACH_EVENT, World
from tests.deadline import until
from tests.scenes.applications import Application, start
from tests.scenes.batch import Batch
from truelog.archive.table import archived_positions
from truelog.log import topics
from truelog.log.positions import Positions
from truelog.storage import bucket
from truelog.support.errors import ServiceDown

log = logging.getLogger("truelog.scene")

pytestmark = [pytest.mark.own_servers, pytest.mark.usefixtures("each_event")]

POINTS = (
    "batch.begun",
    "merge.staged",
    "merge.locked",
    "merge.added",
    "merge.advanced",
    "merge.committed",
)


# In the merge, which holds the view's lock. `test_merge_zombies.py` proves each point without Spark, and
# `test_day_in_a_shop.py` kills a stream before a commit.
OFTEN = pytest.param(["merge.committed"], id="after the commit")
ALL = pytest.param(POINTS, marks=pytest.mark.nightly, id="all")


def suspended(world: World, point: str) -> Application:
    """A stream that is suspended in the middle of a batch."""
    world.traffic.send(300)
    zombie = start(world.settings, "stream.py", fault=f"{point}:1:stop")
    zombie.wait_fault()
    return zombie


@pytest.mark.parametrize("points", [OFTEN, ALL])
def test_killed_during_a_batch(world: World, archive: Application, batch: Batch, points: Sequence[str]) -> None:
    """After one of the kills, the checkpoint and its unfinished batch are deleted too."""
    scratch = world.settings.home / "scratch" / "stream"
    for point in points:
        world.traffic.send(500)
        stream = start(world.settings, "stream.py", fault=f"{point}:1:kill")
        stream.wait_kill()
        if point == "merge.committed":
            assert list(scratch.glob("*/offsets/0"))
            shutil.rmtree(scratch.resolve())

    world.traffic.send(500)
    survivor = start(world.settings, "stream.py")
    world.catch_up(survivor, EACH_EVENT)
    assert survivor.end() == 0

    world.require_each_counted_once()
    batch.require_equal_from_raw([EACH_EVENT])


@pytest.mark.nightly  # `test_merge_zombies.py` does so without Spark, and `test_archive.py` with an archive
@pytest.mark.parametrize("points", [POINTS], ids=["all"])
def test_suspended_and_overtaken(world: World, archive: Application, batch: Batch, points: Sequence[str]) -> None:
    """Each stream wakes up while its successor is suspended at the next point, the last after its successor's end."""
    zombie = world.overtaken("stream", points, partial(suspended, world))
    world.overtake(zombie, EACH_EVENT, "stream")
    zombie.require_refused()

    world.require_each_counted_once()
    batch.require_equal_from_raw([EACH_EVENT])


@pytest.mark.nightly  # `test_day_in_a_shop.py` kills the services under traffic too
def test_services_killed_under_load(world: World, archive: Application, batch: Batch) -> None:
    """Both applications outlive the outages, and the view and the archive are soon complete again."""
    stream = start(world.settings, "stream.py")
    for service, accepts in (("postgresql", _postgresql_accepts), ("kafka", _kafka_accepts), ("s3", _s3_accepts)):
        world.traffic.send(2_000)
        world.catch_up(stream, EACH_EVENT)
        world.traffic.send(2_000, flush=False)
        _kill(world, service)
        until(partial(accepts, world), 60, service)
        accepting = time.monotonic()
        world.traffic.flush()
        ends = topics.end_offsets(world.settings, ["page_view"])
        complete: dict[str, float] = {}
        stream.wait(partial(_complete, world, ends, complete), 90, "the view and the archive to be complete")
        for name, at in complete.items():
            log.warning("%s: the %s is complete %.1f s after it accepts connections", service, name, at - accepting)
    assert archive.process.poll() is None
    world.catch_up(stream, EACH_EVENT)
    assert stream.end() == 0

    world.require_each_counted_once()
    batch.require_equal_from_raw([EACH_EVENT])


@pytest.mark.nightly
def test_overtaken_while_suspended_during_an_outage(world: World, archive: Application) -> None:
    """The stream wakes up after its successor has taken the lease in the restarted database and has ended."""
    zombie = suspended(world, "merge.staged")
    _kill(world, "postgresql")
    until(partial(_postgresql_accepts, world), 60, "postgresql")
    world.traffic.send(300)
    successor = start(world.settings, "stream.py")
    world.catch_up(successor, EACH_EVENT)
    assert successor.end() == 0
    zombie.resume()
    zombie.require_refused()
    world.require_each_counted_once()


def _complete(world: World, ends: Positions, complete: dict[str, float]) -> bool:
    """Record when the view and the archive reach the ends. A record wakes the stream, as a tick does every second."""
    world.traffic.send(1)
    for name, reached in (
        ("view", world.positions(EACH_EVENT)),
        ("archive", archived_positions(world.settings, ["page_view"])),
    ):
        if reached.covers(ends):
            complete.setdefault(name, time.monotonic())
    return len(complete) == 2


def _postgresql_accepts(world: World) -> None:
    try:
        world.ask("SELECT 1")
    except psycopg.OperationalError as error:
        raise ServiceDown(str(error)) from error


def _kafka_accepts(world: World) -> None:
    topics.end_offsets(world.settings, ["page_view"])


def _s3_accepts(world: World) -> None:
    once = Config(retries={"total_max_attempts": 1})
    try:
        bucket.s3_client(world.settings, once).head_bucket(Bucket=world.settings.s3_bucket)
    except (BotoCoreError, ClientError) as error:
        raise ServiceDown(str(error)) from error


def _kill(world: World, service: str) -> None:
    """Kill a service; the supervisor restarts the service."""
    for state in runtime.status(world.settings):
        if state.name == service:
            assert state.pid is not None
            os.kill(state.pid, signal.SIGKILL)
            return
    raise AssertionError(f"{service} is not running")
