"""Tests of the `batch_views` DAG. `tests/scenes/test_backfill.py` runs it."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow.dag_processing.dagbag import DagBag


def test_one_job_builds_all_batch_only_views_behind_the_backfills(dags: "DagBag") -> None:
    job: Any = dags.dags["batch_views"].get_task("build")
    assert job.application.endswith("spark_apps/answer.py")
    assert job.application_args == ["--batch-only"]
    assert (job.pool, job.priority_weight) == ("recompute", 0)
