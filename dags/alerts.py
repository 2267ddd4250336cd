"""Tell each receiver of alerts what is to be told, and keep the outside watcher of a dead-man's switch quiet."""

from datetime import datetime, timedelta

from airflow.sdk import DAG, task
from alert_operator import AlertOperator
from by_clock import by_clock

from truelog.alerts.alert_receiver import configured
from truelog.support.settings import Settings

TELL = """
Tells {receiver} of alerts. What is wrong is found out, and written down, by the service `lag`; a run of this DAG that
goes on waits for something to tell, and ends, green, when {receiver} has taken it: its task's result (XCom) says what.

* **Red**: {receiver} did not take it, try after try; the task's log says how it answered. Nothing is lost: it waits in
  `truelog.notification`, and the next run tries again. Is the address right, and the credential?
* **Pausing** this DAG keeps {receiver} from being told anything. For maintenance, use `truelog alerts silence` instead:
  it ends by itself.
* **Clearing** or marking a run does nothing to what is to be told.
"""
BEAT = """
The dead-man's switch. Each minute a task tells a watcher outside, at `TRUELOG_HEARTBEAT_URL`, that Airflow runs tasks,
that somebody looks for alerts, and that no receiver has left one untaken for ten minutes. When the watcher hears
nothing, it pages: Airflow cannot tell of its own death.

**Red**: the watcher was not told, and will page if that goes on. The task's log says why: nobody looks for alerts (is
`lag` READY in `truelog status`?), a receiver does not take them, or the watcher itself did not answer.
"""


def teller(receiver: str) -> DAG:
    with DAG(
        f"alerts_{receiver}",
        schedule="@continuous",
        start_date=datetime(2026, 1, 1),
        catchup=False,
        max_active_runs=1,
        tags=["alerts"],
        default_args={"owner": "truelog"},
        doc_md=TELL.format(receiver=receiver),
    ) as dag:
        AlertOperator(
            task_id="tell",
            receiver=receiver,
            retries=8,
            retry_delay=timedelta(seconds=2),
            retry_exponential_backoff=2,
            max_retry_delay=timedelta(minutes=1),
            priority_weight=100,
        )
    return dag


@task(retries=0, priority_weight=100, execution_timeout=timedelta(seconds=45))
def beat() -> None:
    """The next minute is the next try."""
    from truelog.alerts import heartbeat

    heartbeat.send_heartbeat(Settings())


for each in configured(Settings()):
    globals()[f"alerts_{each}"] = teller(each)

if Settings().heartbeat_url.get_secret_value():
    with DAG(
        "heartbeat",
        schedule=by_clock("* * * * *"),
        catchup=False,
        max_active_runs=1,
        tags=["alerts"],
        default_args={"owner": "truelog"},
        doc_md=BEAT,
    ):
        beat()
