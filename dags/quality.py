"""Judge each log day of each event type: how much came, what was missing in it, how late it was."""

from datetime import UTC, datetime
from typing import Any

from airflow.sdk import DAG, Param, get_current_context, task
from airflow.sdk.exceptions import AirflowFailException
from day_timetable import log_days
from log_day_operator import DAY, LogDayOperator
from report_link import judged
from spark_job import BATCH

from truelog.schema import event
from truelog.support.settings import Settings

EVENTS = event.event_names()

ABOUT = """
The daily suite of each event type. Of each log day that begins within the run's interval it counts, in the archive, the
events, the different keys, how often each field is missing, what came late and what was malformed; Great Expectations
judges whether each figure lies within its bounds. They are declared beside the event, as `QUALITY` in
`include/events/<event>.py`; what is usual is the median of the seven log days before (`docs/quality.md`).

Figures are rows of `truelog.figure`, judgements of `truelog.validation`; the page *Quality* shows both. What nobody can
tell yet is *not judged*: how many events are usual is known on the fourth log day.

* **Backfill**: over any range of days, oldest first, since each day is held against those before it. Figures are
  replaced; to repeat days that were done, choose to reprocess them.
* **By hand**: a date, or a moment for the one log day that it falls in; and which event types.

**Red** says that producers send something else than they did, not that a view is wrong. By the task that is red:

* `verdict`: its log names each figure that is out of bounds, beside what it usually is. *events* or *keys*: too few,
  ask whether a producer stopped (`truelog lag`, the topic's collector); too many, whether one repeats itself.
  *missing …*: a producer no longer sends that field. *late*: senders hold events back, or their clocks are wrong.
  *malformed*: somebody writes to Kafka past the collector; the column `invalid` of the archive says what is wrong.
  Where the new state is right, change the bounds beside the event; what is usual follows by itself in four days.
* `wait`: the archive did not close the day in time; its log names the topics. See that `stream_archive` is healthy and
  that the service `ticks` runs (`truelog status`), then clear the task.
* `judge`: PostgreSQL or the object store is away: clear it when they are back. Anything else is a fault to report.
"""


@task
def judge(span: dict[str, Any], params: dict[str, Any], run_id: str) -> list[str]:
    """All event types in one process: what judges takes seconds to import."""
    from truelog.batch.run_interval import RunInterval
    from truelog.quality import event_quality

    return event_quality.validate_days(Settings(), params["events"], RunInterval.from_dict(span), run_id)


@judged(map_index_template="{{ label }}", retries=0)
def verdict(event: str, run_id: str) -> None:
    """Red where a log day is not as it should be."""
    from truelog.quality import event_quality

    get_current_context()["label"] = event  # type: ignore[typeddict-unknown-key]
    failed = [each for each in event_quality.results_of_run(Settings(), run_id, event) if each.failed]
    if failed:
        said = (f"{each.day:%Y-%m-%d %H:%M:%S}: {'; '.join(each.failed)}" for each in failed)
        raise AirflowFailException(f"{event} is not as it should be on {'. On '.join(said)}")


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
