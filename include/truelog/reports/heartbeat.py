"""The heartbeat for a dead man's switch: an outside watcher pages someone if the heartbeat no longer arrives.

A task sends the heartbeat, so it stops when Airflow stops. It is also held back if an alert source makes no checks, or
if a receiver has not accepted a notification for a long time, because that receiver cannot report its own failure.
"""

from truelog.alerts import scheduler as alert_scheduler
from truelog.alerts.receiver import configured
from truelog.alerts.sources import outbox as alert_outbox
from truelog.storage.database import connect
from truelog.support.errors import ServiceDown
from truelog.support.http_client import post_json
from truelog.support.settings import Settings

OVERDUE_SECONDS = 600.0


def send_heartbeat(settings: Settings) -> None:
    """Send one heartbeat.

    Raises:
        ServiceDown: a problem could go unnoticed, because a source makes no checks or a receiver is down.
        ReceiverDown: the outside watcher did not accept the heartbeat.
    """
    with connect(settings) as connection:
        sources = alert_scheduler.overdue_sources(connection)
        receivers = alert_outbox.overdue(connection, configured(settings), OVERDUE_SECONDS)
    if sources:
        raise ServiceDown(f"Alerts are not checked: {', '.join(sources)}. Is `lag` READY in `truelog status`?")
    if receivers:
        raise ServiceDown(f"Notifications have been waiting for more than ten minutes. {'; '.join(receivers)}")
    post_json(settings.heartbeat_url.get_secret_value(), {"from": "truelog"}, {}, settings.alert_answer_seconds)
