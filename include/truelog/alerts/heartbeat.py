"""The heartbeat of the dead-man's switch: an outside watcher pages when it no longer arrives.

A task sends it, so it stops when Airflow stops. It is also held back when a source of alerts is not checked, or when a
receiver has not accepted a notification for a long time: that receiver cannot be notified of its own failure.
"""

from truelog.alerts import alert_outbox, alert_watch
from truelog.alerts.alert_receiver import configured
from truelog.storage.database import connect
from truelog.support.errors import ServiceDown
from truelog.support.http_client import post_json
from truelog.support.settings import Settings

OVERDUE_SECONDS = 600.0


def send_heartbeat(settings: Settings) -> None:
    """Send one beat.

    Raises:
        ServiceDown: a problem could go unnoticed, because a source is not checked or a receiver is down.
        ReceiverDown: the outside watcher did not accept the beat.
    """
    with connect(settings) as connection:
        sources = alert_watch.overdue_sources(connection)
        receivers = alert_outbox.overdue(connection, configured(settings), OVERDUE_SECONDS)
    if sources:
        raise ServiceDown(f"Alerts are not checked: {', '.join(sources)}. `truelog status`: is `lag` READY?")
    if receivers:
        raise ServiceDown(f"Notifications have waited for more than ten minutes. {'; '.join(receivers)}")
    post_json(settings.heartbeat_url.get_secret_value(), {"from": "truelog"}, {}, settings.alert_answer_seconds)
