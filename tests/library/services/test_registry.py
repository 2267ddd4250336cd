"""A new service is one folder and one line: the platform and the tests' lists then know it.

The test adds a toy service to a copy of the tree, and runs the copy's own programs and tests.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.house.tree import files, git
from tests.servers import isolated
from truelog.support.settings import PROJECT, Settings

DECLARATION = '''"""A service for a test."""

from truelog.services.declaration import HEALTH, METRICS, Http, Route, Service
from truelog.storage.api_key import Role
from truelog.support.settings import KafkaUser

GREETING = Route("GET", "/greeting", Role.READER)
HTTP = Http("Toy", 18099, (GREETING, METRICS, HEALTH))
SERVICE = Service("toy", "truelog.services.toy.service", ("postgresql", "lag"), KafkaUser.READER, http=HTTP)
'''
SERVICE = '''"""A service for a test."""

from contextlib import asynccontextmanager

from starlette.responses import PlainTextResponse

from truelog.services import web
from truelog.services.declaration import HEALTH, METRICS
from truelog.services.http_server import run_server
from truelog.services.toy.declaration import GREETING, HTTP, SERVICE
from truelog.support.settings import Settings


@asynccontextmanager
async def work():
    yield


async def greet(request):
    key = getattr(request.state, "key", None)
    return PlainTextResponse('{"hello": "%s"}' % (key and key.name))


settings = Settings()
handlers = dict.fromkeys((GREETING, METRICS, HEALTH), greet)
run_server(lambda: web.create_app(settings, HTTP, handlers, work), settings.address(SERVICE.name), grace=1)
'''
SEEN = """
import json
import sys
from pathlib import Path
import runtime
from runtime import keeper
from runtime.services import SERVICES
from tests.nightly import soak_platform
from tests.servers import _OWN_PORTS
settings = runtime.set_up(Path(sys.argv[1]), random_ports=True)
toy = SERVICES["toy"]
print(json.dumps({
    "program": keeper._configuration(settings, SERVICES.values()).partition("[program:toy]")[2].splitlines()[1],
    "address": toy.address(settings),
    "command": toy.command(settings)[1:],
    "every": runtime.EVERY,
    "lists": [soak_platform.SERVICES, _OWN_PORTS],
}))
"""


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the tree with the toy service."""
    root = tmp_path_factory.mktemp("tree")
    for file in files(PROJECT):
        target = root / file.relative_to(PROJECT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, target)
    git(root, "init", "--quiet")
    services = root / "include" / "truelog" / "services"
    (services / "toy").mkdir()
    for name, text in {"__init__": '"""A toy."""\n', "declaration": DECLARATION, "service": SERVICE}.items():
        (services / "toy" / f"{name}.py").write_text(text)
    registry = services / "registry.py"
    registry.write_text(registry.read_text().replace('    "api",\n', '    "api",\n    "toy",\n'))
    return root


@pytest.fixture
def home() -> Iterator[Path]:
    """An empty home with a short path, because a socket in it must have one."""
    with tempfile.TemporaryDirectory(prefix="truelog-") as folder:
        yield Path(folder)


def run(copy: Path, *words: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    """Run Python in the copy. The environment is that of tests, whichever tests have run before."""
    places = os.pathsep.join(map(str, (copy / "include", copy)))
    command = [sys.executable, *words]
    with isolated():
        environment = os.environ | {"PYTHONPATH": places} | variables
        return subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, check=False)


def seen(copy: Path, home: Path) -> dict[str, Any]:
    ran = run(copy, "-c", SEEN, str(home))
    assert ran.returncode == 0, ran.stderr
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


def test_the_supervisor_set_up_and_lists_of_tests_know_it(copy: Path, home: Path) -> None:
    found = seen(copy, home)
    [port] = [line for line in (home / "settings.env").read_text().splitlines() if line.startswith("TRUELOG_TOY")]
    assert found["address"] == f"127.0.0.1:{port.removeprefix('TRUELOG_TOY_PORT=')}"
    assert found["command"] == ["-m", "truelog.services.toy.service"]
    assert found["program"].endswith("-m truelog.services.toy.service")
    assert "toy" in found["every"]
    services, ports = found["lists"]
    assert "toy" in services
    assert "TRUELOG_TOY_PORT=" in ports


def test_the_compose_file_is_out_of_date_until_it_is_written(copy: Path) -> None:
    checks = [f"tests/library/{name}.py" for name in ("runtime/test_runtime_compose", "runtime/test_made_files")]
    pytest_ = ["-m", "pytest", "-q", "-p", "no:cacheprovider", *checks, "tests/library/reports/test_metrics.py"]
    before = run(copy, *pytest_)
    assert before.returncode == 1
    assert "test_every_made_part_is_up_to_date" in before.stdout
    assert "test_every_embedded_service_has_its_counterpart" in before.stdout
    assert "test_prometheus_scrapes_each_service_with_metrics" in before.stdout

    assert run(copy, "-m", "runtime.made_files").returncode == 0
    toy = yaml.safe_load((copy / "docker-compose.yml").read_text())["services"]["toy"]
    assert toy["command"] == ["python", "-m", "truelog.services.toy.service"]
    assert (toy["ports"], set(toy["depends_on"])) == (["127.0.0.1:18099:18099"], {"postgresql", "lag"})
    assert '"18099": { "label": "Toy" }' in (copy / ".devcontainer" / "devcontainer.json").read_text()
    assert "127.0.0.1:18099" in (copy / "docs" / "monitoring" / "prometheus.yml").read_text()
    after = run(copy, *pytest_)
    assert after.returncode == 0, after.stdout


def test_it_serves_its_routes_to_their_roles(copy: Path, postgresql: Settings, home: Path) -> None:
    """The program asks as the supervisor and as senders do."""
    asks = """
import subprocess, sys, urllib.error, urllib.request
from runtime.services import SERVICES
from tests.deadline import until
from truelog.support.settings import Settings
settings, toy = Settings(), SERVICES["toy"]
def status(key):
    request = urllib.request.Request(f"http://{toy.address(settings)}/greeting")
    request.add_header("Authorization", f"Bearer {key}")
    try:
        return urllib.request.urlopen(request).read().decode()
    except urllib.error.HTTPError as refused:
        return refused.code
with subprocess.Popen(toy.command(settings)) as process:
    until(lambda: toy.ready(settings), 30, "the toy")
    print([status(each.get_secret_value()) for each in (settings.reader_key, settings.producer_key)], status("x"))
    process.terminate()
"""
    shutil.copyfile(postgresql.home / "settings.env", home / "settings.env")
    seen(copy, home)  # chooses a port
    ran = run(copy, "-c", asks, TRUELOG_HOME=str(home))
    assert ran.stdout.splitlines() == ["""['{"hello": "reader"}', 403] 401"""], ran.stderr
