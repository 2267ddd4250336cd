"""A scene fails if a defect is planted in the stream. A slow view is not a defect and delays no other view."""

import json
import shutil
from pathlib import Path

import pytest

from tests.beds.world import EACH_EVENT, World
from tests.scenes import defective_stream
from tests.scenes.applications import Application, start
from tests.scenes.batch import Batch
from tests.scenes.conftest import SCENE_VIEWS


@pytest.mark.nightly
@pytest.mark.parametrize("defect", defective_stream.DEFECTS)
def test_a_planted_defect_is_detected(
    world: World, archive: Application, defect: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of these defects counts events twice and loses none."""
    view = f"events_{defect}"
    shutil.copy(SCENE_VIEWS / "each_event.py", tmp_path / f"{view}.py")
    monkeypatch.setenv("TRUELOG_VIEWS_FOLDER", str(tmp_path))
    monkeypatch.setenv("TRUELOG_APPLICATIONS", json.dumps({view: defect}))
    script = str(Path(defective_stream.__file__))
    world.traffic.send(300)
    if defect == "unprotected":
        zombie = start(world.settings, script, defect, defect, fault="merge.staged:1:stop")
        world.overtake(zombie, view, defect)
        zombie.wait(lambda: bool(world.miscounted(view)[1]), 30, "the zombie to write")
    else:
        broken = start(world.settings, script, defect, defect)
        world.catch_up(broken, view)
        world.traffic.send(300)
        world.catch_up(broken, view)
        broken.die()

    lost, doubled = world.miscounted(view)
    assert not lost
    assert doubled
    with pytest.raises(AssertionError, match="counted too often"):
        world.require_each_counted_once(view)


@pytest.mark.nightly
def test_a_slow_view_delays_no_other_and_catches_up_from_the_log(
    world: World, archive: Application, batch: Batch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The slow view, which is in the middle of its first batch, delays neither its application nor another one."""
    for view in (EACH_EVENT, "quick", "slow"):
        shutil.copy(SCENE_VIEWS / "each_event.py", tmp_path / f"{view}.py")
    monkeypatch.setenv("TRUELOG_VIEWS_FOLDER", str(tmp_path))
    monkeypatch.setenv("TRUELOG_APPLICATIONS", json.dumps({"quick": "burdened", "slow": "burdened"}))
    monkeypatch.setenv("TRUELOG_BATCH_GRACE_SECONDS", "0.5")
    separate, released = start(world.settings, "stream.py"), world.settings.home / "slow-view-released"
    script = str(Path(defective_stream.__file__))
    burdened = start(world.settings, script, "slow_view", "burdened", str(released))
    for _ in range(6):
        world.traffic.send(20)
        world.catch_up(separate, EACH_EVENT)
        world.catch_up(burdened, "quick")
    assert world.counted("slow") == 0

    released.touch()
    world.catch_up(burdened, "slow")
    burdened.die()
    assert separate.end() == 0
    for view in (EACH_EVENT, "quick", "slow"):
        world.require_each_counted_once(view)
    batch.require_equal_from_raw(["slow"])
