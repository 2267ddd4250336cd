"""Build new versions of views beside the versions that readers see, prove them, and move the readers."""

from airflow.sdk import DAG, task
from by_clock import by_clock
from spark_job import BATCH, JOB, SparkJob

from truelog.support.settings import Settings

ABOUT = """
Moves readers to the version that a view's file declares, once this version is proved. Until then, they see the version
before, whose stream goes on.

1. The version is built from the archive, beside the other one.
2. The view's application takes it over exactly where the archive ended, and catches up with what readers see.
3. The version is compared with its rebuild. It must be EQUAL.
4. Readers move in one transaction. With `TRUELOG_CUT_OVER=manual`, this step waits for `truelog versions cut-over`.

`due` looks for such versions every three minutes. Usually there is none, so `build` is skipped. Each run goes on where
the last one ended, and the job's log has a line for each step. `truelog versions list` shows how far each version is,
`truelog versions diff VIEW` what will change for readers, and `truelog versions back VIEW` is the way back.

**Red** never means that a view shows wrong data: readers see the same version as before. First steps, by red task:

* `build`: the job's log ends with the view and the reason. If the archive is behind, or the object store does not
  answer, check that `stream_archive` is healthy. A retry resolves most other errors; report an error that persists.
* `due`: PostgreSQL did not answer. Run `truelog status`.

A version that stays unproved does not fail this DAG. `truelog reconcile VIEW` says which rows differ.
"""


@task.short_circuit(retries=0)
def due() -> list[str]:
    """Return the views whose declared version is not built, not proved, or not seen by readers yet."""
    from truelog.versions.build import views_due

    return views_due(Settings())


with DAG(
    "cut_over",
    schedule=by_clock("*/3 * * * *"),
    catchup=False,
    max_active_runs=1,
    tags=["batch"],
    default_args=BATCH,
    doc_md=ABOUT,
):
    SparkJob(task_id="build", script="cut_over.py", application_args=due(), **JOB)
