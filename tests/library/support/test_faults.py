"""Faults: a fault that does not fire is detected."""

from pathlib import Path

import pytest

from tests.scenes.applications import start, unfired
from truelog.support.errors import ServiceDown
from truelog.support.settings import Settings

KEEPS_RUNNING = "import signal; signal.pause()"
ENDS = "pass"
REACHES = "from truelog.support import faults; faults.reach('here')"


@pytest.mark.parametrize(
    ("script", "seconds", "error"),
    [(KEEPS_RUNNING, 1, ServiceDown), (ENDS, 60, AssertionError)],
    ids=["keeps running", "ends"],
)
def test_a_fault_that_does_not_fire_is_detected(
    settings: Settings, tmp_path: Path, script: str, seconds: float, error: type[Exception]
) -> None:
    (tmp_path / "application.py").write_text(script)
    application = start(settings, str(tmp_path / "application.py"), fault="here:1:kill")
    try:
        with pytest.raises(error, match="its fault to fire"):
            application.wait_fault(seconds)
        assert unfired([application]) == [application.name]
    finally:
        application.die()


def test_a_fault_that_fires_is_detected(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "application.py").write_text(REACHES)
    application = start(settings, str(tmp_path / "application.py"), fault="here:1:kill")
    application.wait_kill()
    assert unfired([application]) == []
