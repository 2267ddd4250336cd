"""Deliver alerts to each receiver, and send the heartbeat of a dead-man's switch to its outside watcher."""

from datetime import datetime, timedelta

from airflow.sdk import DAG, task
from alert_operator import AlertOperator
from by_clock import by_clock

from truelog.alerts.alert_receiver import configured
from truelog.support.settings import Settings

DELIVERY_DOC = """
Delivers alerts to {receiver}. The service `lag` finds problems and writes the notifications. A running run of this DAG
waits for a notification; it succeeds when {receiver} has accepted it, and its result (XCom) lists what was delivered.

* **Red**: {receiver} did not accept a notification in any try. The task's log shows its answer. Nothing is lost: the
  notification waits in `truelog.notification`, and the next run tries again. Check the address and the credential.
* **Pausing** this DAG stops all deliveries to {receiver}. For maintenance, use `truelog alerts silence` instead: a
  silence ends by itself.
* **Clearing** or marking a run changes nothing about what is delivered.
"""
HEARTBEAT_DOC = """
The dead-man's switch. Each minute a task calls an outside watcher at `TRUELOG_HEARTBEAT_URL`. The call says that
Airflow runs tasks, that alerts are checked, and that every receiver accepts its notifications within ten minutes. The
watcher pages when the calls stop, because Airflow cannot report its own failure.

**Red**: the watcher was not called, and will page if that continues. The task's log gives the reason: alerts are not
checked (is `lag` READY in `truelog status`?), a receiver does not accept them, or the watcher itself did not answer.
"""


def delivery(receiver: str) -> DAG:
    with DAG(
        f"alerts_{receiver}",
        schedule="@continuous",
        start_date=datetime(2026, 1, 1),
        catchup=False,
        max_active_runs=1,
        tags=["alerts"],
        default_args={"owner": "truelog"},
        doc_md=DELIVERY_DOC.format(receiver=receiver),
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
    """Not retried: the next beat follows in a minute."""
    from truelog.alerts import heartbeat

    heartbeat.send_heartbeat(Settings())


for name in configured(Settings()):
    globals()[f"alerts_{name}"] = delivery(name)

if Settings().heartbeat_url.get_secret_value():
    with DAG(
        "heartbeat",
        schedule=by_clock("* * * * *"),
        catchup=False,
        max_active_runs=1,
        tags=["alerts"],
        default_args={"owner": "truelog"},
        doc_md=HEARTBEAT_DOC,
    ):
        beat()
