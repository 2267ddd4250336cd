"""The heartbeat of the dead-man's switch: an outside watcher hears of us as long as somebody would be paged.

It is sent from a task, so it ends when Airflow does; and it is held back when nobody looks for alerts, or when a
receiver has not taken one for long, of which that receiver cannot be told.
"""

from truelog.alerts import alert_outbox, alert_watch
from truelog.alerts.alert_receiver import configured
from truelog.storage.database import connect
from truelog.support.errors import ServiceDown
from truelog.support.http_client import post_json
from truelog.support.settings import Settings

OVERDUE_SECONDS = 600.0


def send_heartbeat(settings: Settings) -> None:
    """One beat.

    Raises:
        ServiceDown: somebody should be paged who would not be.
        ReceiverDown: the outside watcher did not take it.
    """
    with connect(settings) as connection:
        neglected = alert_watch.overdue_sources(connection)
        overdue = alert_outbox.count_overdue(connection, configured(settings), OVERDUE_SECONDS)
    if neglected:
        raise ServiceDown(f"nobody looks at: {', '.join(neglected)}. `truelog status`: is `lag` READY?")
    if overdue:
        raise ServiceDown(f"alerts were not told for ten minutes. {'; '.join(overdue)}")
    post_json(settings.heartbeat_url.get_secret_value(), {"from": "truelog"}, {}, settings.alert_answer_seconds)
