"""Tests of the `first_builds` DAG."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from truelog.support.settings import Settings

if TYPE_CHECKING:
    from airflow.dag_processing.dagbag import DagBag


def test_a_run_without_an_unbuilt_view_skips_the_job(
    dags: "DagBag", airflow_database: None, postgresql: Settings
) -> None:
    run = dags.dags["first_builds"].test(logical_date=datetime(2026, 1, 1, tzinfo=UTC))
    states = {ti.task_id: str(ti.state) for ti in run.get_task_instances()}
    assert (str(run.state), states) == ("success", {"due": "success", "build": "skipped"})


def test_the_job_receives_the_views_and_waits_in_the_pool_of_batch_jobs(dags: "DagBag") -> None:
    """A build may take an hour, so it must not hold up the fallbacks of `answers`."""
    job: Any = dags.dags["first_builds"].get_task("build")
    assert job.application_args.operator.task_id == "due"
    assert job.pool == dags.dags["recompute"].get_task("recompute").pool != "default_pool"
