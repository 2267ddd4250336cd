"""Faults: each named point is one at which a scene fails, and a fault that does not fire is no pass."""

import re
from pathlib import Path

import pytest

from tests.scenes.applications import start, unfired
from truelog.support.errors import ServiceDown
from truelog.support.settings import PROJECT, Settings

RUNS_ON = "import signal; signal.pause()"
ENDS = "pass"
REACHES = "from truelog.support import faults; faults.reach('here')"


def test_scenes_fail_at_every_point_that_there_is() -> None:
    code = "".join(path.read_text() for path in (PROJECT / "include" / "truelog").rglob("*.py"))
    scenes = "".join(path.read_text() for path in (PROJECT / "tests" / "scenes").glob("test_*.py"))
    points = set(re.findall(r'faults\.reach\("([a-z_.]+)"\)', code))
    assert len(points) >= 9
    assert [point for point in points if f'"{point}' not in scenes] == []


@pytest.mark.parametrize(
    ("script", "seconds", "refused"), [(RUNS_ON, 1, ServiceDown), (ENDS, 60, AssertionError)], ids=["runs on", "ends"]
)
def test_a_fault_that_does_not_fire_is_seen(
    settings: Settings, tmp_path: Path, script: str, seconds: float, refused: type[Exception]
) -> None:
    (tmp_path / "application.py").write_text(script)
    application = start(settings, str(tmp_path / "application.py"), fault="here:1:kill")
    try:
        with pytest.raises(refused, match="its fault to fire"):
            application.wait_fault(seconds)
        assert unfired([application]) == [application.name]
    finally:
        application.die()


def test_a_fault_that_fires_is_seen(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "application.py").write_text(REACHES)
    application = start(settings, str(tmp_path / "application.py"), fault="here:1:kill")
    assert application.wait_death() == -9
    application.wait_fault(1)
    assert unfired([application]) == []
