"""The task that delivers alerts to one receiver: first what waits already, then, deferred, what comes."""

from typing import Any

from airflow.sdk import BaseOperator
from alert_trigger import AlertTrigger

from truelog.support.settings import Settings


class AlertOperator(BaseOperator):
    """Deferred until a notification waits. Succeeds with the delivered notifications as its result.

    If the receiver does not accept a notification, the task fails and is retried. The notification stays in PostgreSQL.
    """

    def __init__(self, *, receiver: str, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.receiver = receiver

    def execute(self, context: Any) -> list[str]:
        """A new run, or a retry."""
        delivered = self._deliver()
        if not delivered:
            self.defer(trigger=AlertTrigger(self.receiver), method_name="resumed")
        return delivered

    def resumed(self, context: Any, event: Any) -> list[str]:
        """Called when a notification waits. The next run waits for the next one."""
        return self._deliver()

    def _deliver(self) -> list[str]:
        from truelog.alerts import alert_delivery

        return alert_delivery.deliver(Settings(), self.receiver)
