"""Validate each log day of each event type: the number of events, their completeness and their lateness."""

from datetime import UTC, datetime
from typing import Any

from airflow.sdk import DAG, Param, get_current_context, task
from airflow.sdk.exceptions import AirflowFailException
from day_timetable import log_days
from log_day_operator import DAY, LogDayOperator
from report_link import judged
from spark_job import BATCH

from truelog.schema.loading import events
from truelog.support.settings import Settings

EVENTS = events.event_names(Settings().events_folder)

ABOUT = """
Validates each event type once a day. For each log day that begins within the run's interval, it computes metrics from
the archive: events, distinct keys, the share of missing values in each field, and the shares of malformed and
late records. Great Expectations checks each metric against its bounds. The bounds are declared with the event, as
`QUALITY` in `include/events/<event>.py`. The usual value is the median of the preceding seven log days
(`docs/quality.md`).

Metrics are rows of `truelog.figure`, and validations are rows of `truelog.validation`. The *Quality* page shows both. A
metric without enough history is *not checked*. The usual number of events is known from the fourth log day on.

* **Backfill** any range of days. Days run oldest first, because each day is compared with the preceding days. Metrics
  are replaced. To repeat days that are done, choose to reprocess them.
* **Manual run**: enter a date, or a time for the log day that contains it, and choose event types. A manual run that
  finds no log day fails in `judge`, and the log names the newest log days.

**Red** means that producers are sending different data than before, not that a view is wrong. First steps, by red
task:

* `verdict`: the log lists each metric that is out of bounds, with its usual value.
  * *events* or *keys* too low: check whether a producer stopped (`truelog lag`, the collector of the topic).
  * *events* or *keys* too high: check whether a producer sends duplicates.
  * *missing …*: a producer no longer sends that field.
  * *late*: senders are delaying events, or their clocks are wrong.
  * *malformed*: a producer bypasses the collector and writes to Kafka. The archive's `invalid` column shows the reason.
  * If the new data is right, change the event's bounds. The usual value adapts automatically within four days.
* `wait`: the archive did not close the day in time. The log lists the topics. Check that `stream_archive` is healthy
  and that the `ticks` service is running (`truelog status`). Then clear the task.
* `judge`: if a manual run has no log day, start another run with a day that the log names. Otherwise PostgreSQL or the
  object store is down. Clear the task when it is back. Report any other error.
"""


@task
def judge(span: dict[str, Any], params: dict[str, Any], run_id: str, dag_run: Any) -> list[str]:
    """Validate all event types in one process, because Great Expectations takes seconds to import.

    A manual run without a log day fails, because the user would wait for a result. A scheduled run, or a day of a
    backfill, may lie before the first log day.
    """
    from truelog.batch.run_interval import RunInterval, describe_missing
    from truelog.quality import event_quality

    settings, interval, by = Settings(), RunInterval.from_dict(span), dag_run.triggering_user_name
    validated = event_quality.validate_days(settings, params["events"], interval, run_id, by)
    if not validated and dag_run.run_type == "manual":
        raise AirflowFailException(describe_missing(settings, interval))
    return validated


@judged(map_index_template="{{ label }}", retries=0)
def verdict(event: str, run_id: str) -> None:
    """Fail if any metric of any log day is out of bounds."""
    from truelog.quality import event_quality

    get_current_context()["label"] = event  # type: ignore[typeddict-unknown-key]
    failed = [each for each in event_quality.results_of_run(Settings(), run_id, event) if each.failed]
    if failed:
        failures = (f"{each.day:%Y-%m-%d %H:%M:%S}: {'; '.join(each.failed)}" for each in failed)
        raise AirflowFailException(f"{event} is out of bounds on {'. On '.join(failures)}")


with DAG(
    "quality",
    schedule=log_days(Settings()),
    start_date=datetime(2020, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    tags=["batch"],
    default_args=BATCH,
    params={
        "day": DAY,
        "events": Param(
            EVENTS, type="array", items={"type": "string", "enum": EVENTS}, examples=EVENTS, title="Event types"
        ),
    },
    doc_md=ABOUT,
):
    verdict.expand(event=judge(LogDayOperator(task_id="wait").output))
