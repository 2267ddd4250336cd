"""Compare every view with its rebuild at exact positions, repair differing rows, and validate the result."""

from datetime import datetime
from typing import Any

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, AssetAny, AssetOrTimeSchedule, Param, task
from airflow.sdk.exceptions import AirflowFailException
from by_clock import by_clock
from reconcile_job import BEGAN, ReconcileJob
from report_link import compared
from spark_job import BATCH, JOB
from view_assets import recomputed_views, view_asset

from truelog.support.settings import Settings
from truelog.views import catalogue

VIEWS = catalogue.view_names(Settings().views_folder)

ABOUT = """
Proves that views are right. It rebuilds each view from the archive at the exact positions of its streamed table and
compares the two row by row. Differing rows are replaced with the rebuild's rows and compared again while the stream
continues. Great Expectations then validates the result: no row differs, no rows are missing, and the view's own checks
pass.

It runs every hour, after `recompute` has written new partials, and on request. In a manual run, choose the views and
whether to repair; `from_raw` ignores partials and typed columns and parses the raw bytes again. The hourly runs also
compare a share of the partials with the raw bytes, so that every partial is proved once a day, and replace partials
that differ. For a day, they begin from the rows of a large view that were proved last, and read only what came since.
The `compare` and `validate` tasks link to the report.

Each comparison is a row of `truelog.reconciliation` (with the first differing rows), each validation a row of
`truelog.validation`, and each repaired row a row of `truelog.repair`, with its values before and after. A view that is
EQUAL gets a certificate, which `truelog verify` proves again from the archive alone.

**Red** means that at least one view was not proved to match the log. First steps, by red task:

* `validate`: the log lists the views that failed, and what failed.
  * *no row differs*: too many rows differ for a safe repair (`TRUELOG_REPAIR_SHARE`, `TRUELOG_REPAIR_ROWS`), or rows
    differ again after a repair. `recon.<view>_v<version>_diff` shows why each row differs, if the cause is known. Run
    this DAG with `from_raw`. If the view is then EQUAL, a partial is corrupt: run the DAG with `from_raw` and `repair`
    to replace the partial. Otherwise run `truelog archive audit`. If the archive has no fault, run this DAG
    again with `repair`, and report the problem.
  * *A check of the view*: rows that equal their rebuild break the view's own rule, so producers are sending unforeseen
    data.
  * *could not be compared*: the view's file is broken, or its code changed under the same `version`. The log shows the
    reason. Fix the file, or increment the version. The other views were compared.
* `compare`: UNKNOWN means that the archive is behind, so the view could not be compared. Check that `stream_archive`
  is healthy. The task retries automatically. If the job itself failed after it had compared the views, the log shows
  the error.
* `done` does nothing. It cannot run if another task is red, and so makes the run red.
"""


@task
def choose(params: dict[str, Any], dag_run: Any, triggering_asset_events: Any) -> list[str]:
    """The views whose new partials started this run; otherwise the views in the run's parameters, by default all."""
    recomputed = recomputed_views(dag_run, triggering_asset_events)
    return list(params["views"]) if recomputed is None else sorted(recomputed)


@compared(trigger_rule="all_done", retries=0)
def validate(views: list[str], run_id: str, dag_run: Any, ti: Any) -> None:
    """Validate the views in one process, because Great Expectations takes seconds to import.

    Only what the last try of `compare` has compared counts.
    """
    from truelog.reconcile import reconcile_checks
    from truelog.spark.priority import yield_to_streams

    yield_to_streams()
    began = ti.xcom_pull(task_ids="compare", key=BEGAN, map_indexes=None)
    since = datetime.fromisoformat(began) if began else dag_run.start_date
    failed = reconcile_checks.validate_views(Settings(), run_id, views, since)
    if failed:
        raise AirflowFailException("\n".join(f"{view} failed: {reason}" for view, reason in failed.items()))


with DAG(
    "reconcile",
    schedule=AssetOrTimeSchedule(
        timetable=by_clock("0 * * * *"),
        assets=AssetAny(*(view_asset(view) for view in VIEWS)),
    ),
    catchup=False,
    max_active_runs=1,
    tags=["batch", "proof"],
    default_args=BATCH,
    params={
        "views": Param(VIEWS, type="array", items={"type": "string", "enum": VIEWS}, examples=VIEWS, title="Views"),
        "from_raw": Param(False, type="boolean", title="From raw", description="Parse the archive's raw bytes again."),
        "repair": Param(True, type="boolean", title="Repair", description="Replace differing rows and compare again."),
    },
    doc_md=ABOUT,
):
    views = choose()
    compare, validated = ReconcileJob(task_id="compare", views=views, **JOB), validate(views)
    compare >> validated
    [compare, validated] >> EmptyOperator(task_id="done")  # alone, the validations would hide a failed comparison
