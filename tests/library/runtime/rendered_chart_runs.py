"""The commands of the chart's Job and services run with the environment of the manifests, on real stores.

No home has settings: each process gets only what its manifest names. `make chart` runs this.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from runtime import chart
from tests.deadline import deadline, until
from tests.library.runtime.helm import Manifest, containers, example, render, workloads
from truelog.services import registry
from truelog.support.errors import ServiceDown
from truelog.support.settings import ENVIRONMENT_FILE, PROJECT, Settings

Container = dict[str, Any]
GRACE = 30  # seconds, as Kubernetes gives a pod


@pytest.fixture(scope="module")
def variables(platform: Settings) -> dict[str, str]:
    """The settings of the test's stores, and their secrets."""
    lines = (platform.home / ENVIRONMENT_FILE).read_text().splitlines()
    return {"TRUELOG_DATABASE_HOST": platform.database_host, **dict(line.split("=", 1) for line in lines)}


@pytest.fixture(scope="module")
def manifests(variables: dict[str, str]) -> dict[str, Manifest]:
    allowed = {chart.variable(name) for name in chart.plain_settings()}
    settings = {name: value for name, value in variables.items() if name in allowed}
    return workloads(render(example() | {"settings": settings, "ca": ""}))


def environment(container: Container, secret: dict[str, str], home: Path) -> dict[str, str]:
    """What the image and Kubernetes put into the environment of a process. The ports are free ones."""
    found = {"PATH": os.environ["PATH"], "PYTHONPATH": str(PROJECT / "include"), "TRUELOG_HOME": str(home)}
    for entry in container["env"]:
        name, reference = entry["name"], entry.get("valueFrom", {}).get("secretKeyRef", {})
        if "value" in entry:
            found[name] = secret[name] if name.endswith("_PORT") else entry["value"]
        elif not reference.get("optional") or reference["key"] in secret:
            found[name] = secret[reference["key"]]
    return found


def words(command: list[str]) -> list[str]:
    program, *more = command
    assert program == "python"
    return [sys.executable, *more]


def require_ready(
    container: Container, process: "subprocess.Popen[bytes]", variables: dict[str, str], log: Path
) -> None:
    """Probe once, as Kubernetes does."""
    assert process.poll() is None, f"{container['name']} ended:\n{log.read_text()}"
    if probe := container.get("readinessProbe"):
        port = variables[f"TRUELOG_{container['name'].upper()}_PORT"]
        try:
            urlopen(
                f"http://127.0.0.1:{port}{probe['httpGet']['path']}", timeout=deadline(probe["timeoutSeconds"])
            ).close()
        except (OSError, HTTPException) as error:
            raise ServiceDown(str(error)) from error
    else:
        command = words(container["startupProbe"]["exec"]["command"])
        ended = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
        if ended.returncode:
            raise ServiceDown(ended.stderr)


@contextmanager
def running(container: Container, variables: dict[str, str], log: Path) -> Iterator["subprocess.Popen[bytes]"]:
    with log.open("wb") as output:
        process = subprocess.Popen(words(container["command"]), env=variables, stdout=output, stderr=output)
    try:
        yield process
        process.terminate()
        # Uvicorn shuts down, and then lets the signal end the process.
        assert process.wait(deadline(GRACE)) in (0, -signal.SIGTERM), log.read_text()
    finally:
        process.kill()
        process.wait()


def test_the_job_prepares_the_stores(manifests: dict[str, Manifest], variables: dict[str, str], tmp_path: Path) -> None:
    [container] = containers(manifests["prepare"])
    given = environment(container, variables, tmp_path / "no-home")
    ended = subprocess.run(words(container["command"]), env=given, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert not (tmp_path / "no-home").exists()


def test_every_service_becomes_ready_and_ends_when_it_is_asked(
    manifests: dict[str, Manifest], variables: dict[str, str], tmp_path: Path
) -> None:
    with ExitStack() as stack:
        for service in registry.SERVICES:
            [container] = containers(manifests[service.name])
            given = environment(container, variables, tmp_path / "no-home")
            log = tmp_path / f"{service.name}.log"
            process = stack.enter_context(running(container, given, log))
            until(partial(require_ready, container, process, given, log), 60, service.name)
    assert not (tmp_path / "no-home").exists()


def test_the_first_container_of_airflow_writes_its_settings(
    manifests: dict[str, Manifest], variables: dict[str, str], platform: Settings, tmp_path: Path
) -> None:
    first, *_ = containers(manifests["airflow"])
    given = environment(first, variables, tmp_path)
    ended = subprocess.run(words(first["command"]), env=given, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    found = Settings(home=tmp_path)
    for name in ("kafka_bootstrap", "database_name", "s3_bucket", "kafka_eraser_password", "airflow_jwt_secret"):
        assert getattr(found, name) == getattr(platform, name)
    assert (found.stores, (tmp_path / "airflow" / "airflow.cfg").exists()) == ("own", True)
