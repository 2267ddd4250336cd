"""The tasks that keep one application in its desired state and watch it without occupying a worker."""

from typing import Any, NoReturn

from airflow.sdk import BaseOperator, TriggerRule
from airflow.sdk.exceptions import AirflowFailException
from stream_trigger import RestTrigger, StreamTrigger

from truelog.support.settings import Settings


class StreamOperator(BaseOperator):  # type: ignore[misc]
    """Defers while the application is healthy. Succeeds after fixing a problem and returns what was wrong.

    Airflow counts how often a run was cleared. A count that the launcher has not seen is a request to restart
    the application; a task retry is not such a request.
    """

    def __init__(self, *, application: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.application = application

    def execute(self, context: Any) -> None:
        """Handle a new run or a cleared run. If the application RESTS, the task fails and `resting` waits."""
        from truelog.apps import launcher

        done = launcher.ensure_desired_state(Settings(), self.application, request_of(context["dag_run"]))
        self.log.info("%s is %s", self.application, done)
        self.defer(trigger=StreamTrigger(self.application), method_name="resumed")

    def resumed(self, context: Any, event: dict[str, str]) -> dict[str, str]:
        """Fix what the trigger found. The next run continues to watch the application."""
        from truelog.apps import launcher

        done = launcher.ensure_desired_state(Settings(), self.application)
        self.log.info("%s was %s, now %s", self.application, event["found"], done)
        return event | {"done": done}


class RestOperator(BaseOperator):  # type: ignore[misc]
    """Runs only if the application could not be started. Waits until the next start attempt, then fails the run.

    A requested start ends the wait.

    Airflow shows this task and the failed task before it as long as the application RESTS.
    """

    def __init__(self, *, application: str, **kwargs: Any) -> None:
        super().__init__(trigger_rule=TriggerRule.ALL_FAILED, **kwargs)
        self.application = application

    def execute(self, context: Any) -> None:
        """Wait. A cleared task is a request to restart the application, which ends the rest."""
        from truelog.apps import launcher

        if request := request_of(context["dag_run"]):
            done = launcher.ensure_desired_state(Settings(), self.application, request)
            self.log.info("%s is %s", self.application, done)
            return
        again = launcher.next_try(Settings(), self.application)
        if again is None:
            self.rested(context, None)
        self.log.warning(
            "%s is RESTING after repeated failures. Next try at %s UTC", self.application, f"{again:%H:%M:%S}"
        )
        self.defer(trigger=RestTrigger(self.application, again.isoformat()), method_name="rested")

    def rested(self, context: Any, event: Any) -> NoReturn:
        raise AirflowFailException(f"{self.application} was not started. The next run tries again")


def request_of(run: Any) -> str | None:
    """The restart request that a user has made by clearing this run, or None."""
    return f"{run.run_id} cleared {run.clear_number}" if run.clear_number else None
