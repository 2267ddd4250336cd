"""Tests of the `verify` DAG: which certificates it accepts, and what its job receives."""

import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from truelog.spark.priority import NICENESS
from truelog.spark.submit import SPARK
from truelog.support.settings import Settings

if TYPE_CHECKING:
    from airflow.dag_processing.dagbag import DagBag

ID = "page_views-20261124T060000.123456Z-0a1b2c3d"


def test_nothing_starts_the_dag_on_its_own(dags: "DagBag") -> None:
    dag = dags.dags["verify"]
    assert type(dag.timetable).__name__ == "NullTimetable"
    assert dag.get_task("verify").pool == "recompute"


@pytest.mark.parametrize("name", ["/etc/passwd", "latest:page_views", "../a", "s3://bucket/certificates/a.json", ""])
def test_only_an_id_names_a_certificate(dags: "DagBag", name: str) -> None:
    """A path would let the job read a file."""
    from airflow.sdk.exceptions import ParamValidationError

    accepted: Any = dags.dags["verify"].params.get_param("certificate")
    assert accepted.resolve(ID) == ID
    with pytest.raises(ParamValidationError):
        accepted.resolve(name)


def test_the_job_receives_the_certificate_the_run_and_the_user(dags: "DagBag", monkeypatch: pytest.MonkeyPatch) -> None:
    from spark_job import SparkJob

    task: Any = dags.dags["verify"].get_task("verify")
    monkeypatch.setattr(SparkJob, "execute", lambda *_: None)
    for user, words in (("oncall", ["--doer", "oncall"]), (None, [])):
        run = SimpleNamespace(triggering_user_name=user)
        task.execute({"dag_run": run, "run_id": "manual__1", "params": {"certificate": ID}})
        assert task.application_args == ["--run", "manual__1", *words, ID]


def test_a_batch_job_has_a_lower_priority_than_the_streams(
    dags: "DagBag", platform: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each process inherits the priority of the thread that starts it, which runs this task only."""
    from airflow.models import Connection
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
    from spark_job import SparkJob

    found: list[int] = []
    monkeypatch.setattr(SparkSubmitHook, "get_connection", lambda *_: Connection(conn_id=SPARK, conn_type="spark"))
    monkeypatch.setattr(
        SparkSubmitHook, "submit", lambda *_, **__: found.append(int(subprocess.check_output(["nice"])))
    )
    task: Any = dags.dags["verify"].get_task("verify")
    task.application_args = []
    with ThreadPoolExecutor(1) as pool:
        pool.submit(SparkJob.execute, task, {}).result()
    assert found == [max(NICENESS, os.getpriority(os.PRIO_PROCESS, 0))]
