"""Tests of the `answers` DAG."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from truelog.support.settings import Settings

if TYPE_CHECKING:
    from airflow.dag_processing.dagbag import DagBag


def test_a_run_without_a_needy_view_skips_the_job(dags: "DagBag", airflow_database: None, postgresql: Settings) -> None:
    run = dags.dags["answers"].test(logical_date=datetime(2026, 1, 1, tzinfo=UTC))
    states = {ti.task_id: str(ti.state) for ti in run.get_task_instances()}
    assert (str(run.state), states) == ("success", {"needed": "success", "answer": "skipped"})


def test_the_job_receives_the_views_and_bypasses_the_backfill_pool(dags: "DagBag") -> None:
    job: Any = dags.dags["answers"].get_task("answer")
    assert (job.pool, job.application_args.operator.task_id) == ("default_pool", "needed")
    assert job.priority_weight > dags.dags["recompute"].get_task("recompute").priority_weight
    assert "application_args" in job.template_fields
