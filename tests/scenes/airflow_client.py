"""Starts the four Airflow services for a scene, or the whole platform."""

from collections.abc import Iterator
from contextlib import contextmanager

import runtime
from runtime import airflow, airflow_client, keeper
from runtime.airflow_client import Airflow, password
from runtime.services import SERVICES
from tests.beds.world import known
from tests.deadline import FACTOR
from tests.servers import STORES
from truelog.apps import launcher
from truelog.support.settings import Settings

__all__ = ["Airflow", "orchestrated", "password", "sign_in", "wanted", "whole_platform"]


def sign_in(settings: Settings, user: str) -> Airflow:
    return airflow_client.sign_in(settings, user, FACTOR)


@contextmanager
def orchestrated(settings: Settings, **changes: object) -> Iterator[Settings]:
    """Start Airflow's four services on the running platform, and stop them at the end to free their memory.

    The changes (`dags_folder=…`) apply to Airflow's configuration; tasks read the home's `settings.env`. No scene
    changes a DAG file, so Airflow reads each file once.
    """
    changed = settings.model_copy(update={"airflow_parse_seconds": 3600, **changes})
    names = [service.name for service in airflow.SERVICES]
    try:
        runtime.up(changed, names, tethered=True)
        yield changed
    finally:
        runtime.stop_airflow(changed)


def wanted(settings: Settings) -> list[str]:
    """The services of a platform with these settings."""
    return [name for name, each in SERVICES.items() if each.is_wanted(settings)]


@contextmanager
def whole_platform(settings: Settings, **changes: object) -> Iterator[Settings]:
    """Start every service, and the applications by Airflow. Only PostgreSQL, Kafka and S3 remain after the block.

    The changes are settings that every process of the home reads.
    """
    with known(settings, **changes) as changed:
        services = [name for name in wanted(changed) if not name.startswith("airflow-")]
        runtime.up(changed, services, tethered=True)
        with orchestrated(changed) as running:
            yield running
        for name in set(services).difference(STORES):
            keeper.stop(changed, name)
    launcher.stop_all(settings)
