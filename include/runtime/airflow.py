"""Airflow, the orchestrator: four services (api-server, scheduler, dag-processor, triggerer).

The services share the `<home>/airflow` folder and one database. The first service to be configured writes `airflow.cfg`
and sets up the database. Importing Airflow takes seconds, so the set-up runs in a separate process, and only if the
database does not record that this release has already set it up.
"""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from importlib.metadata import version
from threading import Lock
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import psycopg
from psycopg import sql

from runtime import airflow_configuration, keeper
from runtime.airflow_configuration import folder, own_database, url
from runtime.service import Service, log_file
from truelog.spark.submit import SPARK
from truelog.support.errors import NotSetUp, ServiceDown
from truelog.support.settings import Settings

ROLES = {"admin": "Admin", "oncall": "User", "analyst": "Viewer"}  # user → role in Airflow
POOL, POOL_SLOTS = "recompute", 1  # on one machine, a second batch job would slow down the streams and the first job
SETUP = "airflow-setup"

_configuring = Lock()


def configure(settings: Settings) -> None:
    if not settings.airflow_port:
        raise NotSetUp(f"no Airflow port in the settings of {settings.home}: run `truelog up`, which chooses a port")
    with _configuring:
        airflow_configuration.write(settings)
        if not _is_set_up(settings):
            _set_up(settings)


def environment(settings: Settings) -> dict[str, str]:
    """Environment variables with paths but no secrets. The jars folder lets Spark jobs use the caller's jars."""
    return {
        "AIRFLOW_HOME": str(folder(settings)),
        "TRUELOG_HOME": str(settings.home),
        "TRUELOG_JARS": str(settings.jars_home),
    }


def _telemetry(settings: Settings, name: str) -> dict[str, str]:
    """The settings for metrics export. If the processes had no instance names, a receiver would merge their metrics."""
    if not settings.otlp_endpoint:
        return {}
    return {
        "OTEL_EXPORTER_OTLP_ENDPOINT": settings.otlp_endpoint,
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        "OTEL_METRIC_EXPORT_INTERVAL": f"{settings.otlp_seconds * 1000:.0f}",
        "OTEL_RESOURCE_ATTRIBUTES": f"service.instance.id={name}",
    }


def address(settings: Settings) -> str:
    return url(settings)


def _is_set_up(settings: Settings) -> bool:
    with _database(settings) as database:
        stamp = "SELECT shobj_description(oid, 'pg_database') FROM pg_database WHERE datname = current_database()"
        if database.execute(stamp).fetchone() != (_stamp(),):
            return False
        entries = "SELECT (SELECT count(*) FROM connection WHERE conn_id = %s), count(*) FROM slot_pool WHERE pool = %s"
        return database.execute(entries, (SPARK, POOL)).fetchone() == (1, 1)


def _set_up(settings: Settings) -> None:
    log = log_file(settings, SETUP)
    with log.open("w") as output:
        ended = subprocess.run(
            [sys.executable, "-m", "runtime.airflow_setup"],
            cwd=folder(settings),
            env={"TRUELOG_SPARK_MASTER": settings.spark_master} | environment(settings),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
        )
    if ended.returncode != 0:
        raise NotSetUp(f"Airflow's database could not be set up; see {log}")
    record_set_up(settings)


def record_set_up(settings: Settings) -> None:
    """Record that this release has set up the database."""
    with _database(settings) as database:
        named = sql.Identifier(settings.airflow_database)
        database.execute(sql.SQL("COMMENT ON DATABASE {} IS {}").format(named, sql.Literal(_stamp())))


def _database(settings: Settings) -> psycopg.Connection:
    return psycopg.connect(**own_database(settings).database(), connect_timeout=5)


def _stamp() -> str:
    """The database comment that marks a completed set-up. A marker file would survive the loss of the database."""
    releases = [f"{name} {version(name)}" for name in ("apache-airflow", "apache-airflow-providers-fab")]
    return f"set up by {', '.join(releases)} for {', '.join(ROLES)}, who see its pages"


def _health(settings: Settings) -> Any:
    """The health of all four components, as the api-server reports it."""
    try:
        with urlopen(f"{url(settings)}/api/v2/monitor/health", timeout=5) as response:  # noqa: S310  always http
            return json.load(response)
    except (URLError, OSError, ValueError) as error:
        raise ServiceDown(f"airflow-api: {error}") from error


def _api_ready(settings: Settings) -> None:
    if (status := _health(settings)["metadatabase"]["status"]) != "healthy":
        raise ServiceDown(f"its database is {status}")


def _heartbeat(service: str, component: str) -> Callable[[Settings], None]:
    """Ready after a healthy heartbeat since the start, because a killed process's last heartbeat also looks healthy."""

    def ready(settings: Settings) -> None:
        health = _health(settings)[component]
        if health["status"] != "healthy":
            raise ServiceDown(f"it is {health['status']}")
        beat = datetime.fromisoformat(health[f"latest_{component}_heartbeat"])
        if beat.timestamp() < keeper.state(settings, service)["start"] + 1:  # the supervisor truncates to seconds
            raise ServiceDown("no heartbeat since the start of the service")

    return ready


def _component(name: str, *words: str, ready: Callable[[Settings], None], after: tuple[str, ...]) -> Service:
    def command(_: Settings) -> list[str]:
        return [sys.executable, "-m", "runtime.airflow_component", *words]

    return Service(
        name=name,
        configure=configure,
        command=command,
        ready=ready,
        address=address,
        environment=lambda settings: environment(settings) | _telemetry(settings, name),
        after=after,
    )


# If `--skip-serve-logs` is missing, a component serves its logs on every network address.
SERVICES = (
    replace(
        _component("airflow-api", "api-server", ready=_api_ready, after=("postgresql",)),
        ports=lambda settings: (settings.airflow_port,),
    ),
    _component(
        "airflow-scheduler",
        *("scheduler", "--skip-serve-logs"),
        ready=_heartbeat("airflow-scheduler", "scheduler"),
        after=("postgresql", "kafka", "s3"),  # needed by the tasks that the scheduler starts immediately
    ),
    _component(
        "airflow-dags", "dag-processor", ready=_heartbeat("airflow-dags", "dag_processor"), after=("postgresql",)
    ),
    _component(
        "airflow-triggerer",
        *("triggerer", "--skip-serve-logs"),
        ready=_heartbeat("airflow-triggerer", "triggerer"),
        after=("postgresql",),
    ),
)
