"""Keep the archive and the stream applications in their desired state: a DAG for each, and one for all of them."""

from datetime import datetime
from typing import Any

from airflow.sdk import DAG, get_current_context, task
from spark_job import SparkJob
from stream_operator import StreamOperator

from truelog.control import application
from truelog.support.settings import Settings

EPOCH = datetime(2026, 1, 1)
APPLICATIONS = application.application_names(Settings())

KEPT = """
**A run that goes on is a healthy `{name}`**; the list of runs is the history of its health. A run ends, green, when
something was wrong and was mended: its task's result (XCom) says what, and what was done. Then the next run begins.

* **Red**: `{name}` could not be started, or ended or hung so often of late that it rests; the task's log ends with its
  own. The next run tries again by itself when the rest is over.
* It is not started anew for being silent while it has nothing to read: no ticks come, and no events, or Kafka is away
  (NO_INPUT in `truelog status`).
* **Clearing** the running task starts `{name}` anew, at once, even while it rests.
* **Marking it** as failed or success does nothing to `{name}`: the next run watches on.
* **Pausing** this DAG is *hands off*: whatever happens to `{name}`, nobody starts or stops it, until it is unpaused.
* To have it stopped: `truelog application stop {name}`, and `start` to have it running again.

`{name}` is a session of its own (`logs/{name}.log`): it lives on when Airflow dies, and is found again.
"""
NET = """
The safety net under the `stream_…` DAGs: each minute, every application is brought to its desired state, should its
own DAG have failed to. One whose DAG is paused is left alone. Applications that no view is given to any more are ended.

When files of the code have changed, `release` finds which applications have other code now, and only those are
started anew. A view whose code changed without a new `version` stands still, and `truelog positions` shows why.

**Red**: an application could not be started, or a release could not be made; the others were seen to all the same.
"""


def watch(name: str) -> DAG:
    with DAG(
        f"stream_{name}",
        schedule="@continuous",
        start_date=EPOCH,
        catchup=False,
        max_active_runs=1,
        tags=["stream", name],
        default_args={"owner": "truelog"},
        doc_md=KEPT.format(name=name),
    ) as dag:
        StreamOperator(task_id="keep", application=name)
    return dag


for each in APPLICATIONS:
    globals()[f"stream_{each}"] = watch(each)


@task
def ensure() -> dict[str, str]:
    """Each application by itself: one that cannot be started holds up no other."""
    from truelog.apps import launcher

    ti: Any = get_current_context()["ti"]
    watched = [name for name in APPLICATIONS if not ti.get_dag(f"stream_{name}").is_paused]
    return launcher.ensure_all(Settings(), APPLICATIONS, watched)


@task.short_circuit
def has_changed() -> bool:
    """Whether files have changed since the code that each application should run was found from them."""
    from truelog.storage.database import connect

    settings = Settings()
    with connect(settings) as connection:
        return application.release_due(connection, settings)


with DAG(
    "streams",
    schedule="* * * * *",
    start_date=EPOCH,
    catchup=False,
    max_active_runs=1,
    tags=["stream"],
    default_args={"owner": "truelog"},
    doc_md=NET,
):
    ensure()
    has_changed() >> SparkJob(task_id="release", script="release.py", pool="default_pool", priority_weight=1)
