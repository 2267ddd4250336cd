"""Another user of the machine, without credentials, gets nothing from any port or file of a running platform."""

import json
import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from pydantic import SecretStr

import runtime
from tests.scenes.applications import Application, start
from tests.scenes.conftest import World
from truelog.support.settings import Settings

STRANGER = 54321  # a user id that no process of the platform has
# Programs, without data: the user that runs PostgreSQL must be able to execute them.
PROGRAMS = "binaries-"
SPARKS = ("artifacts-", "blockmgr-", "spark-", "pyspark-", "hsperfdata_", "liblz4", "snappy-")
KINDS = (stat.S_IFREG, stat.S_IFDIR)


@pytest.fixture
def running(world: World, archive: Application) -> Iterator[World]:
    """Every service except Airflow, the archive and a stream that has merged a marked page view."""
    runtime.up(world.settings, ("ticks", "collector", "lag"), tethered=True)
    world.traffic.send(200)
    stream = start(world.settings, "stream.py")
    world.catch_up(stream)
    yield world
    assert stream.end() == 0


def test_a_stranger_gets_nothing(running: World) -> None:
    if os.geteuid() != 0:
        pytest.fail("this scene changes to another user id, so it must run as root")
    settings = running.settings
    control = Path(tempfile.mkstemp(prefix="truelog-control-")[1])
    control.chmod(0o644)
    ports = listening(settings)
    assert len(ports) >= 12  # five services, and at least three ports of each application
    found = visit([*map(str, files(settings)), str(control)], sorted(ports))
    control.unlink()
    assert found["uid"] == STRANGER
    assert [each for each in found["files"] if PROGRAMS not in each] == [str(control)]
    answers = {(ports[int(port)], probe): said for port, by in found["ports"].items() for probe, said in by.items()}
    secrets = [value.get_secret_value() for _, value in settings if isinstance(value, SecretStr) and value]
    told = {where for where, said in answers.items() for secret in secrets if secret in said}
    told |= {where for where, said in answers.items() if "broadcast" in said and "Expected Sasl" not in said}
    told |= {where for where, said in answers.items() if "StreamCorruptedException" in said}
    told |= {where for where, said in answers.items() if said.startswith("HTTP/1.1 2") or "page_view" in said}
    assert told == set()
    assert any("403" in said or "401" in said for said in answers.values())


def listening(settings: Settings) -> dict[int, str]:
    """The ports of every process that this test session started, with the names of the processes."""
    own = psutil.Process()
    processes = {each.pid: each for each in [*own.children(recursive=True), *runtime.processes(settings), own]}
    return {
        connection.laddr.port: process.name()
        for process in processes.values()
        for connection in process.net_connections(kind="inet")
        if connection.status == psutil.CONN_LISTEN
    }


def files(settings: Settings) -> Iterator[Path]:
    """Every file and folder of the home, of PostgreSQL, and of the temporary folder since the home was made."""
    made = (settings.home / "settings.env").stat().st_ctime
    temporary = Path(tempfile.gettempdir())
    ours = [each for each in temporary.iterdir() if each.lstat().st_uid == os.getuid() and each.lstat().st_mtime > made]
    for root in {settings.home, *(each for each in ours if each.name.startswith(SPARKS))}:
        yield from (each for each in [root, *root.rglob("*")] if stat.S_IFMT(each.lstat().st_mode) in KINDS)


def visit(files: list[str], ports: list[int]) -> Any:
    """What the stranger finds. Its program is an argument, because it may not be able to read this checkout."""
    program = Path(__file__).with_name("stranger.py").read_text()
    ended = subprocess.run(
        [os.path.realpath(sys.executable), "-I", "-S", "-c", program],
        input=json.dumps({"files": files, "ports": ports}),
        user=STRANGER,
        group=STRANGER,
        extra_groups=[],
        cwd="/",
        env={},
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(ended.stdout)
