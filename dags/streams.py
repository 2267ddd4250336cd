"""Keep the archive and the stream applications in their desired state: one DAG per application, and a safety net."""

from datetime import datetime
from typing import Any

from airflow.sdk import DAG, get_current_context, task
from spark_job import SparkJob
from stream_operator import RestOperator, StreamOperator

from truelog.control import application
from truelog.support.settings import Settings

EPOCH = datetime(2026, 1, 1)
APPLICATIONS = application.application_names(Settings())

KEPT = """
Keeps `{name}` in its desired state. A run watches `{name}` and **succeeds after it has fixed a problem**; the task's
result (XCom) says what was wrong and what was done. The next run starts at once, so the list of runs is the history of
`{name}`.

If a run's `keep` task is red and its `resting` task is active, **`{name}` is DOWN and RESTING**: it died too often, and
the run waits before the next try. The *Streams* page shows the time of the next try, and the last error.

* **Red**: `{name}` could not be started, or it ended or hung too often within a few minutes. The log of the `keep` task
  ends with the log of `{name}`: read it first. The next run tries again automatically.
* `{name}` is not restarted while it has nothing to read, because no ticks or events are arriving or because Kafka is
  down (NO_INPUT in `truelog status`).
* **Clear** the active task, `keep` or `resting`, to restart `{name}` at once.
* **Marking** the task as failed or successful does not affect `{name}`. The next run continues to watch it.
* **Pause** this DAG to keep Airflow's *hands off*: it neither starts nor stops `{name}` until you unpause the DAG.
* To stop `{name}`, use `truelog application stop {name}`. To start it again, or at once while it is RESTING, use
  `truelog application start {name}`.

`{name}` runs outside Airflow, with its log in `logs/{name}.log`. It keeps running when Airflow stops, and Airflow finds
it again.
"""
NET = """
The safety net for the `stream_…` DAGs. Every minute it brings each application to its desired state, in case the
application's own DAG has failed to. It leaves an application alone while that DAG is paused and ends applications that
no longer have a view.

The applications load changed views and event types themselves, without a restart. When the library has changed,
`release` finds the affected applications, and only these applications restart. New versions of views wait for it. A
view whose code changed without a new `version` stalls; `truelog positions` shows why.

**Red**: an application could not be started, or the release could not be determined. The other applications were
handled. The red task's log shows the error: read it first.
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
        StreamOperator(task_id="keep", application=name) >> RestOperator(task_id="resting", application=name)
    return dag


for each in APPLICATIONS:
    globals()[f"stream_{each}"] = watch(each)


@task
def ensure() -> dict[str, str]:
    """Bring each application to its desired state. A failed start does not hold up the other applications."""
    from truelog.apps import launcher

    ti: Any = get_current_context()["ti"]
    watched = [name for name in APPLICATIONS if not ti.get_dag(f"stream_{name}").is_paused]
    return launcher.ensure_all_desired_states(Settings(), APPLICATIONS, watched)


@task.short_circuit
def has_changed() -> bool:
    """Whether code files have changed since the release was last determined."""
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
