"""The tasks that answer questions about the past of views, and that rest after a failure."""

from datetime import timedelta
from typing import Any, NoReturn

from airflow.providers.standard.triggers.temporal import TimeDeltaTrigger
from airflow.sdk import BaseOperator, TriggerRule
from airflow.sdk.exceptions import AirflowFailException
from past_trigger import PastTrigger
from spark_job import SparkJob

from truelog.history.past_question import WAITING
from truelog.storage.database import connect
from truelog.support.settings import Settings

_REST = timedelta(seconds=30)


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


class RestOperator(BaseOperator):  # type: ignore[misc]
    """Runs only if the job has failed. Waits, then fails the run, so that the next run does not begin at once."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(trigger_rule=TriggerRule.ALL_FAILED, **kwargs)

    def execute(self, context: Any) -> None:
        self.defer(trigger=TimeDeltaTrigger(_REST), method_name="rested")

    def rested(self, context: Any, event: Any) -> NoReturn:
        raise AirflowFailException("no question was answered. The next run tries again")
