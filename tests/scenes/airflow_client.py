"""Airflow's four for the scenes that need them."""

from collections.abc import Iterator
from contextlib import contextmanager

import runtime
from runtime import airflow
from runtime.airflow_client import Airflow, password, sign_in
from truelog.support.settings import Settings

__all__ = ["Airflow", "orchestrated", "password", "sign_in"]


@contextmanager
def orchestrated(settings: Settings, **changes: object) -> Iterator[Settings]:
    """Airflow's four over services that run; stopped at the end, for other scenes need the memory.

    The changes (`dags_folder=…`) are known to Airflow's own configuration; a task reads the home's `settings.env`.
    """
    changed = settings.model_copy(update=changes)
    names = [service.name for service in airflow.SERVICES]
    try:
        runtime.up(changed, names, tethered=True)
        yield changed
    finally:
        runtime.stop_airflow(changed)
