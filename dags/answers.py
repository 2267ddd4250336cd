"""Serve views from the batch layer while their streams cannot serve them."""

from airflow.sdk import DAG, task
from by_clock import by_clock
from spark_job import BATCH, SparkJob

from truelog.support.settings import Settings

ABOUT = """
Serves views from the batch layer while their streams cannot serve them (the Lambda architecture). It rebuilds each
affected view from the archive, up to the archive's current position. Readers then get the rebuilt view, marked as a
batch answer in `truelog query`, on the *Views* page, and, for SQL readers, in `truelog.answer`.

A view needs a batch answer when one of these conditions has lasted for two minutes (`TRUELOG_BATCH_ANSWER_SECONDS`):

* its application has finished no batch, because it is stopped, down or hung;
* the view has stalled;
* rows of the view are known to differ from their rebuild and were not repaired: the view is in *quarantine*.

An answer is rebuilt when it is older than two minutes and the archive contains newer records. Readers return to the
stream automatically: when a merge brings the stream level with the answer, the same transaction switches them back. A
view leaves quarantine when a comparison finds it EQUAL. Readers never see less of the log than before, except that
wrong rows disappear.

`needed` checks the database every three minutes. Usually no view needs an answer, so `answer` is skipped. A view whose
file no longer matches its table cannot be rebuilt. Such a view is refused once and not tried again until a file
changes. The *Views* page shows the reason.

**Red** never means that a view shows wrong data: readers see the same data as before, which gets older. First steps,
by red task:

* `answer`: the job's log ends with the view and the reason. If the archive is behind, or the object store does not
  answer, check that `stream_archive` is healthy. A retry resolves most other errors; report an error that persists.
* `needed`: PostgreSQL or the object store did not answer. Run `truelog status`.
"""


@task.short_circuit(retries=0)
def needed() -> list[str]:
    """Return the views that need a batch answer now, and drop answers that are no longer used."""
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
    # Readers wait for this job, so it must not queue behind a backfill in the other jobs' pool.
    SparkJob(task_id="answer", script="answer.py", application_args=needed(), pool="default_pool", priority_weight=1)
