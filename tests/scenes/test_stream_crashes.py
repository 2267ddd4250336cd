"""The stream is killed at each named point of its protocol, suspended and overtaken; each record counts once."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import runtime
from tests.scenes import defective_stream
from tests.scenes.applications import Application, start
from tests.scenes.conftest import World
from tests.scenes.traffic import good, in_the_log
from truelog.catalogue import VIEWS

pytestmark = pytest.mark.usefixtures("one_view")

POINTS = (
    "batch.begun",
    "merge.staged",
    "merge.locked",
    "merge.added",
    "merge.advanced",
    "merge.committed",
)


def reconcile(*arguments: str) -> dict[str, Any]:
    """`truelog reconcile --json`, as people run it."""
    truelog = Path(sys.executable).with_name("truelog")
    done = subprocess.run(
        [truelog, "reconcile", "--json", *arguments], capture_output=True, text=True, timeout=180, check=False
    )
    assert done.stdout, done.stderr
    result = {view["view"]: view for view in json.loads(done.stdout)["views"]}
    verdicts = {view["verdict"] for view in result.values()}
    assert done.returncode == (1 if "DIFFERENT" in verdicts else 3 if "UNKNOWN" in verdicts else 0), done.stderr
    return result


def require_each_counted_once(world: World, view: str = "page_views") -> None:
    values = in_the_log(world.settings)
    assert len(values) >= world.traffic.acknowledged
    assert world.counted(view) == good(values)


def require_equal_from_raw(view: str = "page_views") -> None:
    found = reconcile(view, "--from-raw")[view]
    assert (found["missing"], found["extra"], found["different"]) == (0, 0, 0), found["sample"][:3]
    assert found["equal"]
    assert found["rows"] > 0


def catch_up(world: World, stream: Application, view: str = "page_views") -> None:
    stream.wait(lambda: world.caught_up(view), 90, f"{view} at the end of the log")


def cut_off(world: World, application: str) -> None:
    """Take the lease from whoever holds it, as a network that fails would."""
    cut = world.ask(
        "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' "
        "AND (classid::bigint << 32) | objid::bigint = hashtextextended(%s, 0)",
        application,
    )
    assert cut == [(True,)]


def overtake(world: World, zombie: Application, view: str, application: str) -> None:
    """The zombie stands still in the middle of a merge; its successor finishes; then it wakes up."""
    zombie.wait_fault()
    cut_off(world, application)
    successor = start(world.settings, "stream.py", "--application", application)
    catch_up(world, successor, view)
    assert successor.end() == 0
    zombie.resume()


def test_killed_at_every_point_of_the_merge(world: World, archive: Application) -> None:
    for point in POINTS:
        world.traffic.send(500)
        stream = start(world.settings, "stream.py", fault=f"{point}:1:kill")
        stream.wait_fault()
        stream.wait_death()

    world.traffic.send(500)
    survivor = start(world.settings, "stream.py")
    catch_up(world, survivor)
    assert survivor.end() == 0

    require_each_counted_once(world)
    require_equal_from_raw()


@pytest.mark.parametrize("point", ["merge.staged", "merge.added"])
def test_suspended_in_a_merge_and_overtaken(world: World, archive: Application, point: str) -> None:
    """Between staging and merge the zombie holds nothing; within the merge it holds the view's lock."""
    world.traffic.send(300)
    zombie = start(world.settings, "stream.py", fault=f"{point}:1:stop")

    overtake(world, zombie, "page_views", "stream")
    zombie.wait_death()

    require_each_counted_once(world)


def test_database_and_broker_killed_under_load(world: World, archive: Application) -> None:
    stream = start(world.settings, "stream.py")
    for service in ("postgresql", "kafka"):
        world.traffic.send(2_000)
        catch_up(world, stream)
        world.traffic.send(2_000, flush=False)
        _kill(world, service)
        world.traffic.flush()
        if service == "postgresql":
            stream.wait_death()  # without its lease it must not go on; whoever keeps it starts it again
            runtime.up(world.settings, [service], tethered=True)
            stream = start(world.settings, "stream.py")
        catch_up(world, stream)
    assert stream.end() == 0

    require_each_counted_once(world)


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
        catch_up(world, broken, view)
        world.traffic.send(300)
        catch_up(world, broken, view)
        broken.die()

    with pytest.raises(AssertionError):
        require_each_counted_once(world, view)


def test_a_slow_view_holds_nobody_up_and_catches_up_from_the_log(
    world: World, archive: Application, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for view in ("quick", "slow"):
        shutil.copy(VIEWS / "page_views.py", tmp_path / f"{view}.py")
    monkeypatch.setenv("TRUELOG_VIEWS_FOLDER", str(tmp_path))
    monkeypatch.setenv("TRUELOG_BATCH_GRACE_SECONDS", "0.5")
    world.traffic.send(200)
    stream = start(world.settings, str(Path(defective_stream.__file__)), "slow_view", "stream")
    catch_up(world, stream, "quick")
    world.traffic.send(200)
    catch_up(world, stream, "quick")
    assert not world.caught_up("slow")

    catch_up(world, stream, "slow")
    stream.die()

    require_each_counted_once(world, "quick")
    require_each_counted_once(world, "slow")


def _kill(world: World, service: str) -> None:
    """kill -9; the supervisor starts it again."""
    for state in runtime.status(world.settings):
        if state.name == service:
            assert state.pid is not None
            os.kill(state.pid, signal.SIGKILL)
            return
    raise AssertionError(f"{service} does not run")
