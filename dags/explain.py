"""Explain a row of a view by its archived events, on request."""

from typing import Any

from airflow.sdk import DAG, Param
from spark_job import BATCH, SparkJob

from truelog.support.settings import Settings
from truelog.views import catalogue

ABOUT = """
Explains one row of a view, as `truelog explain` does: it reads the records of the view's topics from the archive, and
lists the events behind the row with the row after each of them. *Truelog*'s *Explain* page starts a run and shows the
answer. Nothing starts this DAG on its own. `docs/explain.md` says what the answers mean.

**Red** means that there is no answer. First step: the task's log ends with the reason. If the object store or
PostgreSQL did not answer, ask again on the page.
"""
TEXT = r"^[^\x00]*$"  # a command line cannot contain NUL


class ExplainJob(SparkJob):
    """Explains the row that the run's parameters name."""

    def execute(self, context: Any) -> None:
        run, asked = context["dag_run"], context["params"]
        doer = ["--doer", run.triggering_user_name] if run.triggering_user_name else []
        before = ["--before", asked["before"]] if asked["before"] else []
        self.application_args = [*doer, *before, asked["view"], "--", *asked["where"]]
        super().execute(context)


with DAG(
    "explain",
    schedule=None,
    max_active_runs=1,
    tags=["batch"],
    default_args=BATCH | {"retries": 0},
    params={
        "view": Param(type="string", enum=catalogue.view_names(Settings().views_folder), title="View"),
        "where": Param(
            type="array",
            items={"type": "string", "pattern": TEXT},
            minItems=1,
            title="Row",
            description="One condition for each key column: COLUMN=VALUE or COLUMN is NULL.",
        ),
        "before": Param(
            "",
            type="string",
            pattern=r"^([a-z][a-z0-9_]*:\d+:\d+)?$",
            title="Before",
            description="TOPIC:PARTITION:OFFSET",
        ),
    },
    doc_md=ABOUT,
):
    # A person waits for this job, so it must not queue behind a backfill in the other jobs' pool.
    ExplainJob(task_id="explain", script="explain.py", pool="default_pool", priority_weight=1)
