"""The task that keeps one application: it brings it to its desired state, and then watches without a worker."""

from typing import Any

from airflow.providers.standard.triggers.temporal import DateTimeTrigger
from airflow.sdk import BaseOperator
from stream_trigger import StreamTrigger

from truelog.support.errors import CrashLoop
from truelog.support.settings import Settings


class StreamOperator(BaseOperator):  # type: ignore[misc]
    """Deferred while the application is healthy; done, with what was wrong as its result, when it was mended.

    Airflow counts how often a run was cleared. A count that the launcher has not seen is somebody's wish to have the
    application started anew; a retry of the same task is none.
    """

    def __init__(self, *, application: str, **given: Any) -> None:
        super().__init__(**given)
        self.application = application

    def execute(self, context: Any) -> None:
        """A new run, a cleared one, or one whose rest is over."""
        from truelog.apps import launcher

        run = context["dag_run"]
        wish = f"{run.run_id} cleared {run.clear_number}" if run.clear_number else None
        try:
            done = launcher.ensure(Settings(), self.application, wish)
        except CrashLoop as dying:
            if dying.paused_until is None:
                raise
            self.log.warning("%s", dying)
            self.defer(trigger=DateTimeTrigger(dying.paused_until), method_name="rested")
        self.log.info("%s is %s", self.application, done)
        self.defer(trigger=StreamTrigger(self.application), method_name="resumed")

    def rested(self, context: Any, event: Any) -> None:
        self.execute(context)

    def resumed(self, context: Any, event: dict[str, str]) -> dict[str, str]:
        """Something was wrong: mend it. The next run watches on."""
        from truelog.apps import launcher

        done = launcher.ensure(Settings(), self.application)
        self.log.info("%s was %s, now %s", self.application, event["found"], done)
        return event | {"done": done}
