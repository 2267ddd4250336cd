"""Recompute every view's partials, log day by log day, from the archive; a backfill recomputes history."""

import logging
from datetime import UTC, datetime
from typing import Any

from airflow.sdk import DAG, Param, task
from day_timetable import log_days
from log_day_operator import DAY, LogDayOperator
from report_link import reported
from spark_job import BATCH, JOB, SparkJob
from view_assets import RECOMPUTED, announcement, view_asset

from truelog.support.settings import Settings
from truelog.views import catalogue

VIEWS = catalogue.view_names(Settings().views_folder)
log = logging.getLogger("truelog.recompute")

ABOUT = """
The batch layer. For each view: its *partials* of the log days that begin within the run's interval, computed from the
archive by the same code as the stream. `reconcile` is started when they are there, and rebuilds views from them.

* **Backfill**: over any range of days, on the page *Backfills* below *Truelog*, by the button above or `POST
  /api/v2/backfills`. A partial is replaced as a whole, so doing it again changes nothing that was right. To repeat days
  that were done, choose to reprocess them.
* **By hand**: a date, or a moment for the one log day that it falls in; `open` for a day that is not over, as far as
  it is archived.
* **Compare only**: without `repair`, the comparison that new partials start replaces no row. Where several runs have
  started one comparison, it repairs a view only if all of them let it. `announce` links the report.
* A run whose interval holds no log day, because the archive began later, is green and its jobs are skipped.

**Red** never means that a view shows something wrong: readers are served by the streams, and a rebuild reads the
archive where a partial is missing. What to do first, by the task that is red:

* `wait`: the archive did not close the day in time; its log names the topics. See that `stream_archive` is healthy and
  that the service `ticks` runs (`truelog status`), then clear the task.
* `recompute`: the job's log ends with the error. Where its view's file is broken, mend it; where its code changed under
  the same `version`, raise that. Anything else passes with a retry, or is a fault to report. The other views are done.
* `plan` and `announce` do nothing but read and tell: clear them.

Jobs take a slot of the pool `recompute` and wait behind everything else, so that a backfill does not hurt the streams.
"""


@task
def plan(span: dict[str, Any], params: dict[str, Any]) -> list[dict[str, Any]]:
    """A job for each view, over all days of the span."""
    from truelog.batch import run_interval as spans

    found = spans.archived_days(Settings(), spans.RunInterval.from_dict(span))
    log.info("%s log days begin between %s and %s", len(found), span["begin"], span["end"])
    return jobs(params["views"], found, unfinished=span["unfinished"]) if found else []


def jobs(views: list[str], days: list[datetime], *, unfinished: bool) -> list[dict[str, Any]]:
    """What each mapped job is given."""
    words = [word for day in days for word in ("--day", day.isoformat())]
    words += ["--open"] if unfinished else []
    first = f"{days[0]:%Y-%m-%d %H:%M:%S}".removesuffix(" 00:00:00")
    more = f" and {len(days) - 1} more" if len(days) > 1 else ""
    return [{"application_args": [*words, view], "map_label": f"{view} {first}{more}"} for view in views]


@reported(outlets=[RECOMPUTED])
def announce(planned: list[dict[str, Any]], params: dict[str, Any], dag_run: Any, ti: Any, outlet_events: Any) -> None:
    """Tell whoever waits for these views, once for all of them: they are compared by one job."""
    if dag_run.run_type != "scheduled":
        from truelog.storage import audit_trail
        from truelog.storage.database import connect

        about = f"{dag_run.run_id}: {', '.join(str(job['map_label']) for job in planned)}"
        with connect(Settings()) as connection:
            doer = dag_run.triggering_user_name or audit_trail.AIRFLOW
            audit_trail.record_operation(connection, audit_trail.OperationKind.BACKFILL, "partials", doer, about)
    for job in planned:
        view = view_asset(job["application_args"][-1])
        outlet_events[RECOMPUTED].add(view, announcement(repair=params["repair"], attempt=str(ti.id)))


with DAG(
    "recompute",
    schedule=log_days(Settings()),
    start_date=datetime(2020, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=2,
    tags=["batch"],
    default_args=BATCH,
    params={
        "day": DAY,
        "views": Param(VIEWS, type="array", items={"type": "string", "enum": VIEWS}, examples=VIEWS, title="Views"),
        "open": Param(
            False, type="boolean", title="Open", description="Also a day that is not over, as far as it is archived."
        ),
        "repair": Param(
            True, type="boolean", title="Repair", description="Let the comparison that follows replace what differs."
        ),
    },
    doc_md=ABOUT,
):
    planned = plan(LogDayOperator(task_id="wait").output)
    job = SparkJob.partial(task_id="recompute", script="recompute.py", map_index_template="{{ task.map_label }}", **JOB)
    job.expand_kwargs(planned) >> announce(planned)
