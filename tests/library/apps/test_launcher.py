"""The end of an application that cannot be seen here, its processes, and the last error in its log."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from psutil import _pslinux

from tests.builders.applications import forget_application, runs_on
from tests.deadline import deadline
from truelog.apps import launcher
from truelog.control import application, lease
from truelog.storage.database import Connection
from truelog.support.settings import Settings

NAME = "launched"
# It is in the middle of a merge.
HOLDER = f"""
import time
from truelog.control import lease
from truelog.storage.database import connect
from truelog.support.settings import Settings
taken = lease.take_lease(Settings(), "{NAME}")
merging = connect(Settings(), writer="{NAME}")
lease.require_lease(merging, taken.holder)
print("held", flush=True)
time.sleep(3600)
"""
COMMAND = f"""
import time
from truelog.control import lease
from truelog.support.settings import Settings
taken = lease.take_lease(Settings(), "{NAME}", code=lease.COMMAND)
print("held", flush=True)
time.sleep(3600)
"""


@pytest.fixture
def declared(connection: Connection) -> Iterator[Connection]:
    application.declare(connection, [NAME])
    yield connection
    forget_application(connection, NAME)


def test_an_application_that_runs_elsewhere_exits_when_it_is_stopped(
    postgresql: Settings, declared: Connection
) -> None:
    """It would take its lock again. So its lease is another one, of the same epoch: the next start increases it."""
    with subprocess.Popen([sys.executable, "-c", HOLDER], stdout=subprocess.PIPE, text=True) as holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "held\n"
            runs_on(declared, NAME, "elsewhere")
            before = application.load_status(declared, NAME)
            assert before.alive
            launcher.stop(postgresql, NAME)
            assert holder.wait(deadline(10)) == lease.LEASE_LOST
        finally:
            holder.kill()
    after = application.load_status(declared, NAME)
    assert (after.alive, after.epoch) == (False, before.epoch)


def test_the_process_of_a_command_that_holds_a_lease_is_not_stopped(postgresql: Settings, declared: Connection) -> None:
    """A runbook says: stop all applications, then run the command."""
    with subprocess.Popen([sys.executable, "-c", COMMAND], stdout=subprocess.PIPE, text=True) as command:
        try:
            assert command.stdout is not None
            assert command.stdout.readline() == "held\n"
            application.set_desired(declared, NAME, application.STOPPED, "user")
            assert launcher.ensure_desired_state(postgresql, NAME) == "held by a command"
            assert launcher.ensure_all_desired_states(postgresql, [], [])[NAME] == "held by a command"
            assert NAME not in launcher.stop_all(postgresql)
            runs_on(declared, NAME, "elsewhere")
            application.set_desired(declared, NAME, application.RUNNING, "user")
            assert launcher.ensure_desired_state(postgresql, NAME, "a request") == "held by a command"
            assert application.load_status(declared, NAME).alive
            assert command.poll() is None
        finally:
            command.kill()


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ((launcher._SUBMIT, "--name", "truelog archive", launcher._ARCHIVE_SCRIPT), "archive"),
        ((launcher._SUBMIT, "--name", "truelog s", launcher._STREAM_SCRIPT, "--application", NAME), NAME),
        (("an editor", launcher._ARCHIVE_SCRIPT), ""),
    ],
)
def test_an_application_whose_python_process_does_not_run_yet_is_found(
    tmp_path: Path, words: tuple[str, ...], name: str
) -> None:
    """`spark-submit` takes seconds. It would start the application after everything else has stopped."""
    wait = "import time; print(flush=True); time.sleep(3600)"
    command, environment = [sys.executable, "-c", wait, *words], {"TRUELOG_HOME": str(tmp_path)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, start_new_session=True) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            found = launcher.stop_here(Settings().model_copy(update={"home": tmp_path}))
            assert found == [name] * bool(name)
            if name:
                process.wait(deadline(10))
            assert (process.poll() is None) is not bool(name)
        finally:
            process.kill()


def test_a_step_of_the_clock_hides_no_process(
    postgresql: Settings, declared: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Linux computes when the machine started from the clock."""
    taken = lease.take_lease(postgresql, NAME)
    try:
        status = application.load_status(declared, NAME)
        started = psutil.boot_time()
        monkeypatch.setattr(_pslinux, "boot_time", lambda: started + 3600)
        assert psutil.Process() in launcher.application_processes(status)
    finally:
        taken.release()


@pytest.mark.parametrize(
    ("log", "error"),
    [
        (
            "starting\nValueError: first\n  at Main.java\ntruelog.errors.StoreDown: S3 refused\nexit\n",
            "truelog.errors.StoreDown: S3 refused",
        ),
        ("org.apache.spark.SparkException: Job aborted\n", "org.apache.spark.SparkException: Job aborted"),
        ("one\n\nKilled\n\n", "Killed"),
        ("", ""),
        ("ValueError: " + "x" * 900, "ValueError: " + "x" * 488),
    ],
)
def test_the_last_error_is_the_last_line_that_names_one(tmp_path: Path, log: str, error: str) -> None:
    settings = Settings().model_copy(update={"home": tmp_path})
    path = launcher.log_path(settings, "stream")
    path.parent.mkdir()
    path.write_text(log)
    assert launcher.last_error(settings, "stream") == error


def test_an_application_without_a_log_has_no_error(tmp_path: Path) -> None:
    assert launcher.last_error(Settings().model_copy(update={"home": tmp_path}), "stream") == ""
