"""Ports of new homes, and services whose port another process has."""

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

import runtime
from runtime import credentials, keeper
from runtime.ports import LOOPBACK, require_free
from runtime.services import SERVICES
from tests.deadline import deadline
from truelog.support.errors import ServiceDown
from truelog.support.settings import Settings

ELSEWHERE = """
import sys
from pathlib import Path
from runtime import credentials
from tests.library.runtime.test_ports import ports
print(*ports(credentials.set_up(Path(sys.argv[1]), random_ports=True)), flush=True)
sys.stdin.read()
"""


def ports(settings: Settings) -> set[int]:
    addresses = (settings.kafka_bootstrap, settings.s3_endpoint)
    numbers = (settings.kafka_controller_port, settings.database_port, settings.airflow_port, settings.connect_port)
    found = [int(address.rpartition(":")[2]) for address in addresses] + [*numbers]
    found += [settings.address(name).port for name in settings.services]
    assert len(found) == len(set(found)) == len(credentials.PORTS)
    return set(found)


def blocks(ports: set[int]) -> set[int]:
    return {port // 500 for port in ports}


def test_no_environment_gets_the_random_ports_of_another_whose_services_are_down(tmp_path: Path) -> None:
    made = [ports(credentials.set_up(tmp_path / str(number), random_ports=True)) for number in range(3)]
    assert len(set.union(*made)) == sum(map(len, made))


def test_no_process_gets_the_random_ports_of_another_that_runs(tmp_path: Path) -> None:
    """Each process has a block of ports, and its claim to it."""
    command = [sys.executable, "-c", ELSEWHERE, str(tmp_path / "elsewhere")]
    here = ports(credentials.set_up(tmp_path / "here", random_ports=True))
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        there = set(map(int, other.stdout.readline().split()))
        other.communicate(timeout=deadline(30))
    assert not here & there
    assert len(blocks(here)) == len(blocks(there)) == 1
    assert blocks(here) != blocks(there)


@pytest.fixture
def taken() -> Iterator[int]:
    """A port at which this process listens."""
    with closing(socket.create_server((LOOPBACK, 0))) as server:
        yield server.getsockname()[1]


@pytest.fixture
def home() -> Iterator[Path]:
    """A new home. The paths of pytest's own folders are too long for a socket."""
    with tempfile.TemporaryDirectory(prefix="truelog-") as name:
        yield Path(name)


def test_the_services_have_all_ports_of_a_home(settings: Settings) -> None:
    with_capture = settings.model_copy(update={"capture": True})
    found = [port for service in SERVICES.values() for port in service.ports(with_capture)]
    assert sorted(found) == sorted(ports(settings))


def test_the_error_names_who_has_a_port_and_the_cure(taken: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runtime.ports._LEAVE_SECONDS", 0.0)
    with pytest.raises(
        ServiceDown, match=rf"^api: process {os.getpid()} \(.+\) has port {taken}\. Stop it, or move\.$"
    ):
        require_free(taken, "api", "move")


def test_a_port_is_free_when_only_former_connections_have_it() -> None:
    """A service that starts again waits for none of the connections that it has closed."""
    server = socket.create_server((LOOPBACK, 0))
    port = server.getsockname()[1]
    client = socket.create_connection((LOOPBACK, port))
    accepted, _ = server.accept()
    accepted.close()  # first, so this side keeps the connection for a minute
    server.close()
    require_free(port, "api", "move")
    client.close()
    require_free(port, "api", "move")


def test_a_service_whose_port_is_taken_does_not_start(home: Path, taken: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise it would try again and again, and the other process could answer for it."""
    monkeypatch.setattr("runtime.ports._LEAVE_SECONDS", 0.0)
    made = credentials.set_up(home, random_ports=True).model_copy(update={"s3_endpoint": f"http://{LOOPBACK}:{taken}"})
    try:
        with pytest.raises(ServiceDown, match=f"^s3: process {os.getpid()} .*has port {taken}.*{home}/settings.env"):
            runtime.up(made, ("s3",), tethered=True)
        assert not keeper.state(made, "s3")["pid"]
    finally:
        runtime.down(made)
