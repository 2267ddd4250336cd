"""Tests of the `explain` DAG: which rows it accepts, and what its job receives."""

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from airflow.dag_processing.dagbag import DagBag

WHERE = ["minute=2026-11-24T10:00", "host is NULL", "--doer=admin"]


def test_nothing_starts_the_dag_on_its_own_and_it_does_not_wait_for_backfills(dags: "DagBag") -> None:
    dag = dags.dags["explain"]
    assert type(dag.timetable).__name__ == "NullTimetable"
    assert dag.get_task("explain").pool == "default_pool"


@pytest.mark.parametrize(
    ("name", "wrong"), [("view", "no"), ("view", "--help"), ("where", []), ("where", ["a=\0"]), ("before", "--doer x")]
)
def test_wrong_parameters_are_refused(dags: "DagBag", name: str, wrong: object) -> None:
    from airflow.sdk.exceptions import ParamValidationError

    accepted: Any = dags.dags["explain"].params.get_param(name)
    with pytest.raises(ParamValidationError):
        accepted.resolve(wrong)


def test_the_job_receives_the_question_and_the_user(dags: "DagBag", monkeypatch: pytest.MonkeyPatch) -> None:
    """A condition that looks like an option is not one."""
    from spark_job import SparkJob

    task: Any = dags.dags["explain"].get_task("explain")
    monkeypatch.setattr(SparkJob, "execute", lambda *_: None)
    for user, before, words in (
        ("oncall", "page_view:0:7", ["--doer", "oncall", "--before", "page_view:0:7"]),
        (None, "", []),
    ):
        asked = {"view": "page_views", "where": WHERE, "before": before}
        task.execute({"dag_run": SimpleNamespace(triggering_user_name=user), "params": asked})
        assert task.application_args == [*words, "page_views", "--", *WHERE]
