"""Build batch-only views that were never built."""

from airflow.sdk import DAG, task
from by_clock import by_clock
from spark_job import BATCH, JOB, SparkJob

from truelog.support.settings import Settings

ABOUT = """
Builds a batch-only view once, as soon as the archive contains events that it reads: a new view, or a new version. Then,
`batch_views` builds it once a day. Until the first build, readers of a new version see the former one.

`due` looks for such views every three minutes. Usually there is none, so `build` is skipped. A view that cannot be
built with its present files is refused once, and not tried again until a file changes or `batch_views` runs. The
*Views* page shows the reason.

**Red** never means that a view shows wrong data. First steps, by red task:

* `build`: the job's log ends with the view and the reason. If the archive is behind, or the object store does not
  answer, check that `stream_archive` is healthy. A retry resolves most other errors; report an error that persists.
* `due`: PostgreSQL or the object store did not answer. Run `truelog status`.
"""


@task.short_circuit(retries=0)
def due() -> list[str]:
    """Return the batch-only views that were never built although the archive contains their events."""
    from truelog.serving import build_schedule

    return build_schedule.first_builds_due(Settings())


with DAG(
    "first_builds",
    schedule=by_clock("*/3 * * * *"),
    catchup=False,
    max_active_runs=1,
    tags=["batch"],
    default_args=BATCH,
    doc_md=ABOUT,
):
    SparkJob(task_id="build", script="answer.py", application_args=due(), **JOB)
