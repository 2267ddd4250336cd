"""Airflow as a library: loads DAG files as the dag-processor does, without Airflow's database."""

import os
import sys
import tempfile
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.dags.dag_files import load_dags
from tests.servers import SharedServers
from truelog.support.settings import PROJECT

if TYPE_CHECKING:
    from airflow.dag_processing.dagbag import DagBag

# Airflow reads its configuration when it is imported. Pytest reads this file before any test imports Airflow.
_HOME = tempfile.TemporaryDirectory(prefix="airflow-")
os.environ["AIRFLOW_HOME"] = _HOME.name
os.environ["AIRFLOW__CORE__LOAD_EXAMPLES"] = "False"
os.environ["AIRFLOW__CORE__DAGS_FOLDER"] = str(PROJECT / "dags")


@pytest.fixture(scope="session")
def _plugins() -> Iterator[None]:
    """Put plugins and DAG files on the import path, as Airflow's own processes do."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(PROJECT / "plugins"))
        patch.syspath_prepend(str(PROJECT / "dags"))
        yield


@pytest.fixture(scope="session")
def dags(servers: SharedServers, _plugins: None) -> "DagBag":
    """All DAG files, loaded once."""
    assert "airflow" not in sys.modules or os.environ["AIRFLOW_HOME"] == _HOME.name
    return load_dags(PROJECT / "dags")


@pytest.fixture(scope="session")
def airflow_database(dags: "DagBag") -> None:
    """Airflow's own database for complete runs (`dag.test`): a file in the temporary home."""
    from airflow.models import Connection
    from airflow.utils.db import merge_conn, upgradedb

    from truelog.spark.submit import SPARK

    upgradedb()
    merge_conn(Connection(conn_id=SPARK, conn_type="spark", host="local[1]"))
