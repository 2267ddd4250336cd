"""The stream is killed at each named point of its protocol, suspended and overtaken; each record counts once."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.scenes.applications import Application, start
from tests.scenes.conftest import World

POINTS = (
    "batch.begun",
    "merge.staged",
    "merge.locked",
    "merge.added",
    "merge.advanced",
    "merge.committed",
)


def reconcile(world: World, *arguments: str) -> dict[str, Any]:
    """`truelog reconcile --json`, as people run it."""
    truelog = Path(sys.executable).with_name("truelog")
    done = subprocess.run(
        [truelog, "reconcile", "--json", *arguments], capture_output=True, text=True, timeout=180, check=False
    )
    assert done.stdout, done.stderr
    result = {view["view"]: view for view in json.loads(done.stdout)["views"]}
    assert done.returncode == (0 if all(v["equal"] for v in result.values()) else 1), done.stderr
    return result


def require_each_counted_once(world: World) -> None:
    """By the table itself, and by a rebuild of the raw bytes at its positions."""
    assert world.counted("page_views", "views") == world.traffic.good
    found = reconcile(world, "page_views", "--from-raw")["page_views"]
    assert (found["missing"], found["extra"], found["different"]) == (0, 0, 0), found["sample"][:3]
    assert found["equal"]
    assert found["rows"] > 0


def cut_off(world: World, application: str) -> None:
    """Take the lease from whoever holds it, as a network that fails would."""
    world.connection.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' "
        "AND (classid::bigint << 32) | objid::bigint = hashtextextended(%s, 0)",
        (application,),
    )


def catch_up(world: World, stream: Application, seconds: float = 90) -> None:
    stream.wait(lambda: world.caught_up("page_views"), seconds, "page_views at the end of the log")


def test_killed_at_every_point_of_the_merge(world: World, archive: Application) -> None:
    for point in POINTS:
        world.traffic.send(500)
        world.traffic.flush()
        stream = start(world.settings, "stream.py", fault=f"{point}:1:kill")
        stream.wait_fault()
        stream.wait_death()

    world.traffic.send(500)
    world.traffic.flush()
    survivor = start(world.settings, "stream.py")
    catch_up(world, survivor)
    assert survivor.end() == 0

    require_each_counted_once(world)


@pytest.mark.parametrize("point", ["merge.staged", "merge.added"])
def test_a_suspended_stream_wakes_up_after_its_successor_began(
    world: World, archive: Application, point: str
) -> None:
    world.traffic.send(300)
    world.traffic.flush()
    zombie = start(world.settings, "stream.py", fault=f"{point}:1:stop")
    zombie.wait_fault()
    cut_off(world, "stream")
    successor = start(world.settings, "stream.py")
    catch_up(world, successor)

    zombie.resume()
    assert zombie.wait_death() != 0
    world.traffic.send(300)
    world.traffic.flush()
    catch_up(world, successor)
    assert successor.end() == 0

    require_each_counted_once(world)
