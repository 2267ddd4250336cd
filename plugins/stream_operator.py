"""The task that keeps one application in its desired state and watches it without occupying a worker."""

from typing import Any

from airflow.providers.standard.triggers.temporal import DateTimeTrigger
from airflow.sdk import BaseOperator
from stream_trigger import StreamTrigger

from truelog.support.errors import CrashLoop
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
        """Handle a new run, a cleared run, or the end of a pause after repeated failures."""
        from truelog.apps import launcher

        run = context["dag_run"]
        request = f"{run.run_id} cleared {run.clear_number}" if run.clear_number else None
        try:
            done = launcher.ensure_desired_state(Settings(), self.application, request)
        except CrashLoop as error:
            if error.paused_until is None:
                raise
            self.log.warning("%s", error)
            self.defer(trigger=DateTimeTrigger(error.paused_until), method_name="rested")
        self.log.info("%s is %s", self.application, done)
        self.defer(trigger=StreamTrigger(self.application), method_name="resumed")

    def rested(self, context: Any, event: Any) -> None:
        self.execute(context)

    def resumed(self, context: Any, event: dict[str, str]) -> dict[str, str]:
        """Fix what the trigger found. The next run continues to watch the application."""
        from truelog.apps import launcher

        done = launcher.ensure_desired_state(Settings(), self.application)
        self.log.info("%s was %s, now %s", self.application, event["found"], done)
        return event | {"done": done}
