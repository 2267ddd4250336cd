"""The task that waits, without occupying a worker, until its run's log days are closed."""

from datetime import UTC, datetime
from typing import Any

from airflow.sdk import BaseOperator, Param
from log_day_trigger import LogDayTrigger, lagging

from truelog.batch.run_interval import RunInterval
from truelog.support.errors import ArchiveBehind
from truelog.support.settings import Settings

# A parameter in the form for manual runs.
DAY = Param(
    None,
    type=["null", "string"],
    pattern=r"^\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d)?(Z|\+00:00)?)?$",
    title="Day",
    description="A date (2026-11-01) or a time within one log day (2026-11-01 10:00), UTC. Leave empty in a backfill.",
)
_TIMEOUT_SECONDS = 3600.0  # after the end of the last day


class LogDayOperator(BaseOperator):
    """Returns the run's span. Does not wait for unfinished days that the run explicitly includes."""

    def execute(self, context: Any) -> dict[str, Any]:
        """Defer if days are open. A run's span covers a whole calendar day, so today grows until midnight."""
        day, now = Settings().log_day_seconds, datetime.now(UTC)
        span = RunInterval.of_run(context["params"], context["dag_run"].data_interval_start, now, day)
        closes = span.closes(day)
        if not span.unfinished and lagging(closes):
            deadline = max(now, closes).timestamp() + _TIMEOUT_SECONDS
            self.log.info("waiting until the archive reaches %s", closes)
            trigger = LogDayTrigger(closes.isoformat(), deadline)
            self.defer(trigger=trigger, method_name="closed", kwargs={"span": span.as_dict()})
        return span.as_dict()

    def closed(self, context: Any, event: dict[str, str], span: dict[str, Any]) -> dict[str, Any]:
        """Return the span once its days are closed.

        Raises:
            ArchiveBehind: the wait timed out.
        """
        if event["open"]:
            raise ArchiveBehind(
                f"{event['open']}. Check that the `archive` application and the `ticks` service are running."
            )
        return span
