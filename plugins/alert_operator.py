"""The task that tells one receiver: what waits already, and then, without a worker, what comes."""

from typing import Any

from airflow.sdk import BaseOperator
from alert_trigger import AlertTrigger

from truelog.support.settings import Settings


class AlertOperator(BaseOperator):
    """Deferred while there is nothing to tell; done, with what was told as its result, when something was.

    Where the receiver does not take it, the task fails and is tried again: what waits is kept in PostgreSQL.
    """

    def __init__(self, *, receiver: str, **given: Any) -> None:
        super().__init__(**given)
        self.receiver = receiver

    def execute(self, context: Any) -> list[str]:
        """A new run, or another try."""
        told = self._tell()
        if not told:
            self.defer(trigger=AlertTrigger(self.receiver), method_name="resumed")
        return told

    def resumed(self, context: Any, event: Any) -> list[str]:
        """Something is to be told. The next run waits on."""
        return self._tell()

    def _tell(self) -> list[str]:
        from truelog.alerts import alert_delivery

        return alert_delivery.deliver(Settings(), self.receiver)
