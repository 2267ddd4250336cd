"""The task that answers questions about the past of views. The task defers while no question waits."""

from typing import Any

from past_trigger import PastTrigger
from spark_job import SparkJob

from truelog.history.past_question import WAITING
from truelog.storage.database import connect
from truelog.support.settings import Settings


class PastOperator(SparkJob):
    """Defers until a question waits, and then runs the job that answers it."""

    def execute(self, context: Any) -> None:
        with connect(Settings()) as connection:
            waits = connection.execute(WAITING).fetchone() is not None
        if not waits:
            self.defer(trigger=PastTrigger(), method_name="resumed")
        super().execute(context)

    def resumed(self, context: Any, event: Any) -> None:
        """Answer once a question waits. The next run waits for the next question."""
        super().execute(context)
