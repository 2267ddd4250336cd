"""Answer the questions of applications about the past of views."""

from datetime import datetime

from airflow.sdk import DAG
from past_operator import PastOperator, RestOperator
from spark_job import BATCH

ABOUT = """
Answers `as_of` of the read API: the rows that a view had at an earlier time, rebuilt from the archive as
`truelog query --as-of` does. A run waits until an application asks, and then answers all questions that wait. An
application asks again until it gets its answer (`docs/applications.md`).

**Red** means that applications wait for answers. First step: the task's log ends with the reason. If the archive or
PostgreSQL did not answer, the questions wait, and the next run tries again: the task `resting` lets half a minute pass
before that. A question that has ended two jobs is refused. One that has waited for a day is deleted.

**Pausing** this DAG lets all such questions wait, at most `TRUELOG_API_PAST_QUESTIONS`. Others are refused with 429.
"""

with DAG(
    "past",
    schedule="@continuous",
    start_date=datetime(2026, 1, 1),
    catchup=False,
    max_active_runs=1,
    tags=["batch"],
    default_args=BATCH | {"retries": 0},
    doc_md=ABOUT,
):
    # An application waits for this job, so it must not queue behind a backfill in the other jobs' pool.
    answer = PastOperator(task_id="answer", script="past.py", pool="default_pool", priority_weight=1)
    answer >> RestOperator(task_id="resting")
