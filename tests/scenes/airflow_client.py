"""Starts the four Airflow services for a scene."""

from collections.abc import Iterator
from contextlib import contextmanager

import runtime
from runtime import airflow, airflow_client
from runtime.airflow_client import Airflow, password
from tests.deadline import FACTOR
from truelog.support.settings import Settings

__all__ = ["Airflow", "orchestrated", "password", "sign_in"]


def sign_in(settings: Settings, user: str) -> Airflow:
    return airflow_client.sign_in(settings, user, FACTOR)


@contextmanager
def orchestrated(settings: Settings, **changes: object) -> Iterator[Settings]:
    """Start Airflow's four services on the running platform, and stop them at the end to free their memory.

    The changes (`dags_folder=…`) apply to Airflow's configuration; tasks read the home's `settings.env`.
    """
    changed = settings.model_copy(update=changes)
    names = [service.name for service in airflow.SERVICES]
    try:
        runtime.up(changed, names, tethered=True)
        yield changed
    finally:
        runtime.stop_airflow(changed)
