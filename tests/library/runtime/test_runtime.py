"""The end of a platform, and its changes while it runs."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import runtime
from runtime import home, keeper
from runtime.services import SERVICES
from tests.deadline import deadline
from truelog.services import registry
from truelog.support.settings import PROJECT, Settings


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


def test_down_stops_a_platform_whose_settings_have_got_another_service(another: Settings) -> None:
    runtime.up(another, ("s3",), tethered=True)
    runtime.down(another.model_copy(update={"capture": True}))
    assert states(another) == {"STOPPED"}


def test_a_service_with_a_changed_configuration_runs_again_although_another_one_was_named(another: Settings) -> None:
    runtime.up(another, ("s3",), tethered=True)
    [before] = running(another)
    moved = another.home / "moved"
    moved.symlink_to(another.jars_home)
    runtime.up(another.model_copy(update={"jars_folder": moved}), (), tethered=True)
    [after] = running(another)
    assert (before.name, after.name) == ("s3", "s3")
    assert before.pid != after.pid


def running(settings: Settings) -> list[runtime.State]:
    return [each for each in runtime.status(settings) if each.state == "READY"]


def states(settings: Settings) -> set[str]:
    return {each.state for each in runtime.status(settings)}


def test_own_services_run_again_when_the_settings_file_has_changed(another: Settings) -> None:
    """A service reads the file when it starts. The stores and Airflow have files of their own."""

    def programs() -> dict[str, str]:
        text = keeper._configuration(another, SERVICES.values())
        return dict(part.split("]", 1) for part in text.split("[program:")[1:])

    before = programs()
    assert programs() == before
    home.append(another.home, {"TRUELOG_API_ORIGINS": "https://shop.example"})
    after = programs()
    assert {name for name in before if before[name] != after[name]} == {each.name for each in registry.SERVICES}


def test_down_stops_applications_although_the_supervisor_and_the_database_are_gone(another: Settings) -> None:
    """They would wait five minutes for the database. Applications of another home go on."""
    with ExitStack() as stack:
        archive = stack.enter_context(application(another.home, "archive.py"))
        stream = stack.enter_context(application(another.home, "stream.py", "--application", "people"))
        other = stack.enter_context(application(another.home / "other", "archive.py"))
        for each in (archive, stream, other):
            stack.callback(each.kill)
        runtime.down(another)
        assert [each.wait(deadline(10)) for each in (archive, stream)] == [-signal.SIGTERM] * 2
        assert other.poll() is None


def test_down_stops_an_application_that_has_no_lease_yet(another: Settings) -> None:
    """It would take its lease after the next `up`, although it has imported the files of an earlier release."""
    runtime.up(another, ("postgresql",), tethered=True)
    with application(another.home, "archive.py") as starting:
        try:
            runtime.down(another)
            assert starting.poll() is not None
        finally:
            starting.kill()


def application(home: Path, script: str, *arguments: str) -> "subprocess.Popen[bytes]":
    """An application in a session of its own, which stops while it still imports."""
    command = [sys.executable, str(PROJECT / "spark_apps" / script), *arguments]
    return subprocess.Popen(command, env=os.environ | {"TRUELOG_HOME": str(home)}, start_new_session=True)
