"""Have the batch layer answer the readers of views whose stream does not serve them."""

from airflow.sdk import DAG, task
from by_clock import by_clock
from spark_job import BATCH, SparkJob

from truelog.support.settings import Settings

ABOUT = """
Lambda: while a stream does not serve its readers, the batch layer does. A view that needs it is rebuilt where the
archive has come to, and its readers get that answer, marked as such: `truelog query` says so, *Views* shows it, and
`truelog.answer` has it for SQL. A view needs it when for two minutes (`TRUELOG_BATCH_ANSWER_SECONDS`)

* its application has made no batch: it was stopped, is dead, or hangs;
* it has stood still; or
* its rows have been known to differ from their rebuild, and were not repaired: it is in *quarantine*.

The answer is made anew when it is older than that and the archive has more. Nobody has to switch back: when the stream
has all of the answer, its merge does, in that transaction; a view leaves quarantine when a comparison finds it EQUAL.
Readers never see less of the log than they saw, but for rows that are wrong.

`needed` asks the database every three minutes, and nearly always the rest is skipped. A view whose file is not what
made its table cannot be rebuilt: it is refused once, until a file changes, and the reason is shown with the view.

**Red** never means that a view shows something wrong: readers see what they saw before, and it grows old.

* `answer`: the job's log ends with the view and the reason. *Behind*, or the store does not answer: see that
  `stream_archive` is healthy. Anything else passes with a retry, or is a fault to report.
* `needed`: PostgreSQL or the archive's store did not answer: see `truelog status`.
"""


@task.short_circuit(retries=0)
def needed() -> list[str]:
    """The views that need an answer which the archive can give; those of no use any more are dropped."""
    from truelog.serving import fallback_policy

    return fallback_policy.views_due(Settings())


with DAG(
    "answers",
    schedule=by_clock("*/3 * * * *"),
    catchup=False,
    max_active_runs=1,
    tags=["batch"],
    default_args=BATCH,
    doc_md=ABOUT,
):
    # Readers wait for it: it does not stand behind a backfill in the pool of the other jobs.
    SparkJob(task_id="answer", script="answer.py", application_args=needed(), pool="default_pool", priority_weight=1)
