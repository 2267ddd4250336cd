"""The task that delivers alerts to one receiver. The task defers while no notification is pending."""

from typing import Any

from airflow.sdk import BaseOperator
from alert_trigger import AlertTrigger

from truelog.support.settings import Settings


class AlertOperator(BaseOperator):
    """Defers until a notification is pending. Succeeds with the delivered notifications as its result.

    If the receiver does not accept a notification, the task fails and is retried. The notification stays in PostgreSQL.
    """

    def __init__(self, *, receiver: str, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.receiver = receiver

    def execute(self, context: Any) -> list[str]:
        """Handle a new run or a retry."""
        delivered = self._deliver()
        if not delivered:
            self.defer(trigger=AlertTrigger(self.receiver), method_name="resumed")
        return delivered

    def resumed(self, context: Any, event: Any) -> list[str]:
        """Deliver once a notification is pending. The next run waits for the next notification."""
        return self._deliver()

    def _deliver(self) -> list[str]:
        from truelog.alerts import delivery as alert_delivery

        return alert_delivery.deliver(Settings(), self.receiver)
