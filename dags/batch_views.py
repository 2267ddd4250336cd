"""Build the batch-only views from the archive, once a day."""

from airflow.sdk import DAG
from by_clock import by_clock
from spark_job import BATCH, JOB, SparkJob

from truelog.serving.build_schedule import cron
from truelog.support.settings import Settings

ABOUT = """
Builds all batch-only views, which no stream runs: views whose files say `batch_only=True`. It rebuilds each of them
from the archive, up to the archive's current position, and replaces its rows in one transaction. The age of the rows
is in `truelog query`, on the *Views* page, and, for SQL readers, in `truelog.answer`.

It runs once a day, at `TRUELOG_BATCH_VIEWS_AT` (UTC), after `recompute` has made new partials. **A manual run** builds
the views now. `first_builds` builds a new view, and a new version, within minutes. Readers see the version when it is
built.

`reconcile` compares a batch-only view with its rebuild at the positions of its last build, like any other view. If rows
differ, it builds the view again.

**Red** never means that a view shows wrong data: readers see the rows of the last build, which get older. First steps:

* `build`: the job's log ends with each view that was not built, and the reason. If a view's file is broken, fix it. If
  the view's code changed under the same `version`, increment the version. If the archive is behind, or the object store
  does not answer, check that `stream_archive` is healthy. The other views were built. A retry resolves most other
  errors; report an error that persists.
"""

with DAG(
    "batch_views",
    schedule=by_clock(cron(Settings())),
    catchup=False,
    max_active_runs=1,
    tags=["batch"],
    default_args=BATCH,
    doc_md=ABOUT,
):
    SparkJob(task_id="build", script="answer.py", application_args=["--batch-only"], **JOB)
