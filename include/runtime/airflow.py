"""Airflow: the orchestrator, as four services: api-server, scheduler, dag-processor, triggerer.

They share one folder, `<home>/airflow`, and one database. Whichever of them is configured first writes
`airflow.cfg` and has the database set up; importing Airflow takes seconds, so that happens in a process of its own,
and only where the database does not say that it is done already.
"""

import json
import subprocess
import sys
from collections.abc import Callable
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

ROLES = {"admin": "Admin", "oncall": "User", "analyst": "Viewer"}  # user → what Airflow lets that user do
POOL, POOL_SLOTS = "recompute", 1  # a second job beside the streams would only slow all of them down on one machine
SETUP = "airflow-setup"

_configuring = Lock()


def configure(settings: Settings) -> None:
    if not settings.airflow_port:
        raise NotSetUp(f"no port for Airflow in the settings of {settings.home}: `truelog up` chooses one")
    with _configuring:
        airflow_configuration.write(settings)
        if not _is_set_up(settings):
            _set_up(settings)


def environment(settings: Settings) -> dict[str, str]:
    """Where to look, and no secret. Jars are named so that Spark jobs find those that the caller has."""
    return {
        "AIRFLOW_HOME": str(folder(settings)),
        "TRUELOG_HOME": str(settings.home),
        "TRUELOG_JARS": str(settings.jars_home),
    }


def _reports(settings: Settings, name: str) -> dict[str, str]:
    """How its metrics are sent, and as whose: those of two processes that bear one name would be taken for one."""
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
        said = "SELECT shobj_description(oid, 'pg_database') FROM pg_database WHERE datname = current_database()"
        if database.execute(said).fetchone() != (_stamp(),):
            return False
        there = "SELECT (SELECT count(*) FROM connection WHERE conn_id = %s), count(*) FROM slot_pool WHERE pool = %s"
        return database.execute(there, (SPARK, POOL)).fetchone() == (1, 1)


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
    with _database(settings) as database:
        database.execute(sql.SQL("COMMENT ON DATABASE airflow IS {}").format(sql.Literal(_stamp())))


def _database(settings: Settings) -> psycopg.Connection:
    return psycopg.connect(**own_database(settings).database(), connect_timeout=5)


def _stamp() -> str:
    """What the database says of itself once this release has set it up; a file beside it would outlive it."""
    releases = [f"{name} {version(name)}" for name in ("apache-airflow", "apache-airflow-providers-fab")]
    return f"set up by {', '.join(releases)} for {', '.join(ROLES)}, who see its pages"


def _health(settings: Settings) -> Any:
    """What the api-server says of all four."""
    try:
        with urlopen(f"{url(settings)}/api/v2/monitor/health", timeout=5) as answer:  # noqa: S310  always http
            return json.load(answer)
    except (URLError, OSError, ValueError) as error:
        raise ServiceDown(f"airflow-api: {error}") from error


def _api_ready(settings: Settings) -> None:
    if (status := _health(settings)["metadatabase"]["status"]) != "healthy":
        raise ServiceDown(f"its database is {status}")


def _beats(service: str, component: str) -> Callable[[Settings], None]:
    """Healthy by its own word, given since it was started: the last words of one that was killed sound healthy too."""

    def ready(settings: Settings) -> None:
        said = _health(settings)[component]
        if said["status"] != "healthy":
            raise ServiceDown(f"it is {said['status']}")
        beat = datetime.fromisoformat(said[f"latest_{component}_heartbeat"])
        if beat.timestamp() < keeper.state(settings, service)["start"] + 1:  # the supervisor cuts seconds off
            raise ServiceDown("no heartbeat since it was started")

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
        environment=lambda settings: environment(settings) | _reports(settings, name),
        after=after,
    )


# `--skip-serve-logs`: else they listen on every address.
SERVICES = (
    _component("airflow-api", "api-server", ready=_api_ready, after=("postgresql",)),
    _component(
        "airflow-scheduler",
        *("scheduler", "--skip-serve-logs"),
        ready=_beats("airflow-scheduler", "scheduler"),
        after=("postgresql", "kafka", "s3"),  # which the tasks that it starts at once ask for
    ),
    _component("airflow-dags", "dag-processor", ready=_beats("airflow-dags", "dag_processor"), after=("postgresql",)),
    _component(
        "airflow-triggerer",
        *("triggerer", "--skip-serve-logs"),
        ready=_beats("airflow-triggerer", "triggerer"),
        after=("postgresql",),
    ),
)
