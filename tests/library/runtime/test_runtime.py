"""The end of a platform."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import runtime
from truelog.support.settings import Settings


@pytest.fixture
def another(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[Settings]:
    """A platform of its own, because other tests use the services of the session's platform."""
    home = Path(tempfile.mkdtemp(prefix="truelog-"))
    monkeypatch.setenv("TRUELOG_HOME", str(home))
    made = runtime.set_up(home, random_ports=True)
    yield made
    runtime.down(made)
    shutil.rmtree(home)


def test_down_stops_running_services_and_may_be_repeated(another: Settings) -> None:
    runtime.up(another, ("s3",), tethered=True)
    assert "READY" in states(another)

    runtime.down(another)
    assert states(another) == {"STOPPED"}
    runtime.down(another)
    assert states(another) == {"STOPPED"}

    runtime.up(another, ("s3",), tethered=True)
    assert "READY" in states(another)


def states(settings: Settings) -> set[str]:
    return {each.state for each in runtime.status(settings)}
