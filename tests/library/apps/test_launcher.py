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
