"""Airflow as a service: access, metrics, ports, secrets, and recovery from kills."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import psutil
import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from pydantic import SecretStr

import runtime
from runtime import airflow
from tests.deadline import deadline, until
from tests.library.listener import Listener, listening
from tests.scenes.airflow_client import Airflow, orchestrated, sign_in
from tests.scenes.exposure import below, listening_addresses
from tests.servers import AIRFLOW, Environment
from truelog.spark.submit import SPARK
from truelog.support.errors import ServiceDown
from truelog.support.settings import Settings

pytestmark = pytest.mark.nightly

T = TypeVar("T")
NAMES = [service.name for service in airflow.SERVICES]

# A task passes its environment on to every Spark job.
DAG = """
import json, os, shutil
from airflow.sdk import dag, task

@dag
def surroundings():
    @task
    def write(params):
        seen = {"environment": dict(os.environ), "spark": shutil.which("spark-submit")}
        with open(params["to"], "w") as file:
            json.dump(seen, file)
    write()

surroundings()
"""


@pytest.fixture(scope="module")
def metrics() -> Iterator[Listener]:
    """The receiver of Airflow's own metrics."""
    with listening() as it:
        yield it


@pytest.fixture(scope="module")
def running(
    environment: Environment, metrics: Listener, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Settings]:
    folder = tmp_path_factory.mktemp("dags")
    (folder / "surroundings.py").write_text(DAG)
    provided = environment.provide("postgresql", AIRFLOW)
    with orchestrated(provided, dags_folder=folder, otlp_endpoint=metrics.url, otlp_seconds=5) as settings:
        yield settings


@pytest.fixture(scope="module")
def admin(running: Settings) -> Airflow:
    return sign_in(running, "admin")


def states(settings: Settings) -> dict[str, runtime.State]:
    return {state.name: state for state in runtime.status(settings) if state.name in NAMES}


def family(settings: Settings, *names: str) -> list[psutil.Process]:
    pids = [state.pid for name, state in states(settings).items() if name in names and state.pid]
    return [member for pid in pids for member in (psutil.Process(pid), *psutil.Process(pid).children(recursive=True))]


def inspected(settings: Settings, inspect: Callable[[psutil.Process], T]) -> list[T]:
    """A property of every process of the four services, except short-lived processes such as DAG file readers."""
    values = []
    for process in family(settings, *NAMES):
        with suppress(psutil.NoSuchProcess):
            values.append(inspect(process))
    return values


def secrets(settings: Settings) -> list[str]:
    return [value.get_secret_value() for _, value in settings if isinstance(value, SecretStr) and value]


def test_all_four_are_healthy_and_small(running: Settings) -> None:
    found = states(running)
    assert {name: state.state for name, state in found.items()} == dict.fromkeys(NAMES, "READY")
    memory = {name: state.memory_mb or 0 for name, state in found.items()}
    assert 400 < sum(memory.values()) < 1500, memory


@pytest.mark.parametrize("user", ["admin", "oncall", "analyst"])
def test_each_user_signs_in_by_a_password_of_their_own(running: Settings, user: str) -> None:
    sign_in(running, user).ask("GET", "/api/v2/dags")
    others = {"username": user, "password": running.airflow_password.get_secret_value()}
    assert Airflow(running).request("POST", "/auth/token", others)[0] == 401


@pytest.mark.parametrize("path", ["/api/v2/dags", "/api/v2/connections", "/api/v2/config"])
def test_a_client_without_a_token_reads_nothing(running: Settings, path: str) -> None:
    assert Airflow(running).request("GET", path)[0] == 401
    assert Airflow(running, token="0" * 48).request("GET", path)[0] in (401, 403)


def test_analysts_only_read_and_oncall_may_act(running: Settings, tmp_path: Path) -> None:
    analyst, oncall = sign_in(running, "analyst"), sign_in(running, "oncall")
    analyst.wait_for_dag("surroundings")
    wanted = {"logical_date": None, "conf": {"to": str(tmp_path / "seen")}}
    assert analyst.request("POST", "/api/v2/dags/surroundings/dagRuns", wanted)[0] == 403
    assert oncall.request("GET", "/api/v2/connections")[0] == 403
    run = oncall.trigger("surroundings", to=str(tmp_path / "seen"))
    oncall.wait_for_run("surroundings", run)


def test_a_task_finds_spark_and_inherits_no_secret(running: Settings, admin: Airflow, tmp_path: Path) -> None:
    admin.wait_for_dag("surroundings")
    run = admin.trigger("surroundings", to=str(tmp_path / "seen"))
    admin.wait_for_run("surroundings", run)
    seen = json.loads((tmp_path / "seen").read_text())
    assert seen["spark"] == str(Path(sys.executable).with_name("spark-submit"))
    assert seen["environment"]["TRUELOG_HOME"] == str(running.home)
    assert [secret for secret in secrets(running) if secret in json.dumps(seen)] == []


def test_each_component_sends_its_metrics_by_otlp(running: Settings, metrics: Listener) -> None:
    heartbeats = {(f"airflow-{name}", f"airflow.{name}_heartbeat") for name in ("scheduler", "triggerer")}

    def received() -> None:
        if missing := {*heartbeats, ("airflow-dags", "airflow.dag_processor_heartbeat")} - _measured(metrics):
            raise ServiceDown(f"no metrics yet: {missing}")

    until(received, 90, "metrics")
    assert set(metrics.paths) == {"/v1/metrics"}


def _measured(metrics: Listener) -> set[tuple[str, str]]:
    """The received metrics, as pairs of component and metric name."""
    sent = [each for body in [*metrics.taken] for each in ExportMetricsServiceRequest.FromString(body).resource_metrics]
    return {
        (attribute.value.string_value, metric.name)
        for each in sent
        for attribute in each.resource.attributes
        if attribute.key == "service.instance.id"
        for scope in each.scope_metrics
        for metric in scope.metrics
    }


def test_every_port_is_on_loopback(running: Settings) -> None:
    addresses = [address for process in family(running, *NAMES) for address in listening_addresses(process)]
    assert set(addresses) == {("127.0.0.1", running.airflow_port)}


def test_no_secret_is_in_a_command_line_an_environment_or_a_log(running: Settings, environment: Environment) -> None:
    """Airflow was set up in the home of the servers, with the same secrets."""
    shown = inspected(running, lambda process: " ".join([*process.cmdline(), *process.environ().values()]))
    assert len(shown) > len(NAMES)
    assert any(str(running.home) in text for text in shown)  # not in all: some processes overwrite theirs with a title
    homes = {running.home, environment.server_home}
    logs = [file for home in homes for file in (home / "logs").glob("airflow-*.log")]
    logs += [file for file in below(running.home / "airflow" / "logs") if file.suffix == ".log"]
    assert {"airflow-setup.log", "airflow-api.log"} <= {file.name for file in logs}
    shown += [file.read_text(errors="replace") for file in logs]
    assert [secret for secret in secrets(running) for text in shown if secret in text] == []


def test_another_set_up_adds_what_is_missing_and_changes_nothing(running: Settings, admin: Airflow) -> None:
    """The connection alone defines Spark's master, even if the settings change."""
    connection, pool = f"/api/v2/connections/{SPARK}", f"/api/v2/pools/{airflow.POOL}"
    assert admin.ask("GET", connection)["host"] == running.spark_master
    moved = {"connection_id": SPARK, "conn_type": "spark", "host": "spark://elsewhere:7077"}
    admin.ask("PATCH", connection, moved)
    admin.ask("DELETE", pool)
    airflow.configure(running)
    assert admin.ask("GET", pool)["slots"] == airflow.POOL_SLOTS
    assert admin.ask("GET", connection)["host"] == "spark://elsewhere:7077"
    admin.ask("PATCH", connection, moved | {"host": running.spark_master})
    sign_in(running, "oncall")


@pytest.mark.parametrize("name", NAMES)
def test_a_killed_service_is_restarted_and_leaves_no_process(running: Settings, name: str) -> None:
    [leader, *children] = family(running, name)
    leader.kill()
    until(lambda: _require_new_and_ready(running, name, leader.pid), 60, name)
    assert psutil.wait_procs(children, timeout=deadline(10))[1] == []


def test_after_the_kills_runs_succeed(running: Settings, admin: Airflow, tmp_path: Path) -> None:
    run = admin.trigger("surroundings", to=str(tmp_path / "seen"))
    admin.wait_for_run("surroundings", run)


def _require_new_and_ready(settings: Settings, name: str, before: int) -> None:
    now = states(settings)[name]
    if now.pid in (None, before) or now.state != "READY":
        raise ServiceDown(f"it is {now.state}")
