"""Serve views from the batch layer while their streams cannot."""

from airflow.sdk import DAG, task
from by_clock import by_clock
from spark_job import BATCH, SparkJob

from truelog.support.settings import Settings

ABOUT = """
Serves views from the batch layer while their streams cannot (the Lambda architecture). It rebuilds each view that needs
it from the archive, up to the archive's current position. Readers then get that answer, marked as a batch answer:
`truelog query` says so, the page *Views* shows it, and SQL readers find it in `truelog.answer`.

A view needs a batch answer when one of these has lasted two minutes (`TRUELOG_BATCH_ANSWER_SECONDS`):

* its application has made no batch, because it is stopped, down or hung;
* the view has stalled;
* rows of the view are known to differ from their rebuild and were not repaired: the view is in *quarantine*.

An answer is rebuilt when it is older than that and the archive holds newer records. Readers return to the stream
automatically: the merge by which the stream catches up with the answer switches them back in the same transaction. A
view leaves quarantine when a comparison finds it EQUAL. Readers never see less of the log than before, except that
wrong rows disappear.

`needed` checks the database every three minutes. Usually no view needs an answer, and `answer` is skipped. A view whose
file no longer matches its table cannot be rebuilt. It is refused once, until a file changes, and the page *Views* shows
the reason.

**Red** never means that a view shows wrong data: readers see what they saw before, and it gets older. What to do first,
by the task that is red:

* `answer`: the job's log ends with the view and the reason. If the archive is behind, or the object store does not
  answer, check that `stream_archive` is healthy. A retry resolves most other errors; report an error that persists.
* `needed`: PostgreSQL or the object store did not answer. Run `truelog status`.
"""


@task.short_circuit(retries=0)
def needed() -> list[str]:
    """The views that need a batch answer now. It also drops answers that are no longer used."""
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
    # Readers wait for this job, so it must not queue behind a backfill in the pool of the other jobs.
    SparkJob(task_id="answer", script="answer.py", application_args=needed(), pool="default_pool", priority_weight=1)
