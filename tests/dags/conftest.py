"""Airflow as a library: DAG files read as the dag-processor reads them, without a database of Airflow's own."""

import os
import sys
import tempfile
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from truelog.support.settings import PROJECT, Settings

if TYPE_CHECKING:
    from airflow.dag_processing.dagbag import DagBag

# Airflow reads its configuration when it is imported, which no test does before this file is read.
_HOME = tempfile.TemporaryDirectory(prefix="airflow-")
os.environ["AIRFLOW_HOME"] = _HOME.name
os.environ["AIRFLOW__CORE__LOAD_EXAMPLES"] = "False"
os.environ["AIRFLOW__CORE__DAGS_FOLDER"] = str(PROJECT / "dags")


@pytest.fixture(scope="session")
def _plugins() -> Iterator[None]:
    """Plugins, and what DAG files hold, are found as Airflow's own processes find them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(PROJECT / "plugins"))
        patch.syspath_prepend(str(PROJECT / "dags"))
        yield


@pytest.fixture(scope="session")
def dags(settings: Settings, _plugins: None) -> "DagBag":
    """Every DAG file, read once."""
    assert "airflow" not in sys.modules or os.environ["AIRFLOW_HOME"] == _HOME.name
    from airflow.dag_processing.dagbag import DagBag

    return DagBag(dag_folder=PROJECT / "dags")


@pytest.fixture(scope="session")
def airflow_database(dags: "DagBag") -> None:
    """Airflow's own database, for whole runs (`dag.test`): a file in the temporary home."""
    from airflow.models import Connection
    from airflow.utils.db import merge_conn, upgradedb

    from truelog.spark.submit import SPARK

    upgradedb()
    merge_conn(Connection(conn_id=SPARK, conn_type="spark", host="local[1]"))
