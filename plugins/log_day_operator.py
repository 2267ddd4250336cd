"""The task that waits, without a worker, until the log days of its run are closed."""

from datetime import UTC, datetime
from typing import Any

from airflow.sdk import BaseOperator, Param
from log_day_trigger import LogDayTrigger, lagging

from truelog.batch.run_interval import RunInterval
from truelog.support.errors import ArchiveBehind
from truelog.support.settings import Settings

# What a run by hand is asked.
DAY = Param(
    None,
    type=["null", "string"],
    pattern=r"^\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d)?(Z|\+00:00)?)?$",
    title="Day",
    description="2026-11-01, or a moment within one log day: 2026-11-01 10:00. In UTC; a backfill knows it.",
)
_PATIENCE_SECONDS = 3600.0  # beyond the end of the last day


class LogDayOperator(BaseOperator):
    """Its result is the run's span. Days that are asked for though they are not over are not waited for."""

    def execute(self, context: Any) -> dict[str, Any]:
        """A run with an interval is about the day of the calendar that it begins in: today grows until it is over."""
        day, now = Settings().log_day_seconds, datetime.now(UTC)
        span = RunInterval.of_run(context["params"], context["dag_run"].data_interval_start, now, day)
        closes = span.closes(day)
        if not span.unfinished and lagging(closes):
            deadline = max(now, closes).timestamp() + _PATIENCE_SECONDS
            self.log.info("waiting until the archive has come to %s", closes)
            trigger = LogDayTrigger(closes.isoformat(), deadline)
            self.defer(trigger=trigger, method_name="closed", kwargs={"span": span.as_dict()})
        return span.as_dict()

    def closed(self, context: Any, event: dict[str, str], span: dict[str, Any]) -> dict[str, Any]:
        """The days are closed, or the wait was too long."""
        if event["open"]:
            raise ArchiveBehind(f"{event['open']}. Does the application `archive` run, and do the ticks?")
        return span
