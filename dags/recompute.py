"""Recompute the partials of every view from the archive, one log day at a time. A backfill recomputes history."""

import logging
from datetime import UTC, datetime
from typing import Any

from airflow.sdk import DAG, Param, task
from day_timetable import log_days
from log_day_operator import DAY, LogDayOperator
from recompute_job import RecomputeJob
from report_link import reported
from spark_job import BATCH, JOB
from view_assets import RECOMPUTED, announcement, view_asset

from truelog.support.settings import Settings
from truelog.views import catalogue

VIEWS = catalogue.view_names(Settings().views_folder)
log = logging.getLogger("truelog.recompute")

ABOUT = """
The batch layer. For each view, it computes the *partials* of the log days that begin within the run's interval. It
reads the archive and runs the same code as the stream. New partials start `reconcile`, which rebuilds views from them.

* **Backfill** any range of days on *Truelog*'s *Backfills* page, with the button above, or through `POST
  /api/v2/backfills`. A partial is replaced as a whole, so a repeated backfill does not change correct data. To repeat
  days that are done, choose to reprocess them.
* **Manual run**: enter a date, or a time for the log day that contains it. Choose `open` to include the
  archived part of a day that is not over.
* **Compare only**: if `repair` is off, the comparison that new partials start replaces no rows. If several runs started
  one comparison, it repairs a view only if all of them allow it. The `announce` task links to the report.
* If the archive began after a run's interval, the interval contains no log day. The run then skips its jobs and
  succeeds.

**Red** never means that a view shows wrong data: the streams serve readers, and a rebuild reads the archive where a
partial is missing. First steps, by red task:

* `wait`: the archive did not close the day in time. The log lists the topics. Check that `stream_archive` is healthy
  and that the `ticks` service is running (`truelog status`). Then clear the task.
* `recompute`: the log ends with each view that failed and its error. If a view's file is broken, fix it. If the view's
  code changed under the same `version`, increment the version. A retry resolves most other errors; report an error that
  persists. The other views have their new partials.
* `plan` and `announce`: clear the task. These tasks only read and record.

Jobs use the `recompute` pool and wait behind all other tasks, so that a backfill does not slow down the streams.
"""


@task.short_circuit
def plan(span: dict[str, Any], params: dict[str, Any]) -> dict[str, Any] | None:
    """The views and log days of the run. If there are none, the tasks after this one are skipped."""
    from truelog.batch import run_interval as spans

    found = spans.archived_days(Settings(), spans.RunInterval.from_dict(span))
    log.info("%s log days begin between %s and %s", len(found), span["begin"], span["end"])
    days = [day.isoformat() for day in found]
    chosen: list[str] = params["views"]
    return {"views": chosen, "days": days, "unfinished": span["unfinished"]} if days and chosen else None


@reported(outlets=[RECOMPUTED])
def announce(planned: dict[str, Any], params: dict[str, Any], dag_run: Any, ti: Any, outlet_events: Any) -> None:
    """Announce the new partials of all views in one task, so that one job compares them."""
    if dag_run.run_type != "scheduled":
        from truelog.storage import audit_trail
        from truelog.storage.database import connect

        with connect(Settings()) as connection:
            doer = dag_run.triggering_user_name or audit_trail.AIRFLOW
            about = f"{dag_run.run_id}: {summary(planned)}"
            audit_trail.record_operation(connection, audit_trail.OperationKind.BACKFILL, "partials", doer, about)
    for view in planned["views"]:
        outlet_events[RECOMPUTED].add(view_asset(view), announcement(repair=params["repair"], attempt=str(ti.id)))


def summary(planned: dict[str, Any]) -> str:
    """The views, the first day and the number of further days."""
    first, *more = (datetime.fromisoformat(day) for day in planned["days"])
    begins = f"{first:%Y-%m-%d %H:%M:%S}".removesuffix(" 00:00:00")
    return f"{', '.join(planned['views'])}: {begins}" + (f" and {len(more)} more" if more else "")


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
            False, type="boolean", title="Open", description="Include the archived part of a day that is not over."
        ),
        "repair": Param(
            True, type="boolean", title="Repair", description="Let the comparison that follows replace differing rows."
        ),
    },
    doc_md=ABOUT,
):
    planned = plan(LogDayOperator(task_id="wait").output)
    RecomputeJob(task_id="recompute", planned=planned, **JOB) >> announce(planned)
