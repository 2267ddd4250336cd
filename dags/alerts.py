"""Deliver alerts to each receiver, and send the dead-man's-switch heartbeat to an outside watcher."""

from datetime import datetime, timedelta

from airflow.sdk import DAG, task
from alert_operator import AlertOperator
from by_clock import by_clock

from truelog.alerts.receiver import configured
from truelog.support.settings import Settings

DELIVERY_DOC = """
Delivers alerts to {receiver}. The `lag` service finds problems and writes the notifications. A run of this DAG waits
for a notification and succeeds when {receiver} has accepted it. The run's result (XCom) lists what was delivered.

* **Red**: {receiver} did not accept a notification in any try. The task's log shows the answer. Nothing is lost: the
  notification stays in `truelog.notification`, and the next run tries again. Check the address and the credential.
* **Pausing** this DAG stops all deliveries to {receiver}. For maintenance, use `truelog alerts silence` instead,
  because a silence ends automatically.
* **Clearing** or marking a run does not affect what is delivered.
"""
HEARTBEAT_DOC = """
The dead-man's switch. Every minute a task calls an outside watcher at `TRUELOG_HEARTBEAT_URL`. The call confirms that
Airflow is running tasks, that alerts are being checked, and that every receiver accepts its notifications within ten
minutes. The watcher pages when the calls stop, because Airflow cannot report its own failure.

**Red**: the watcher was not called and will page if this continues. The task's log shows the reason: alerts are not
being checked (is `lag` READY in `truelog status`?), a receiver does not accept notifications, or the watcher itself
did not answer.
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
    """Send one heartbeat. It is not retried, because the next one follows in a minute."""
    from truelog.reports import heartbeat

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
