"""Compare every view with its rebuild at exact positions, repair what differs, and have the outcome judged."""

from typing import Any

from airflow.sdk import DAG, AssetAny, AssetOrTimeSchedule, Param, get_current_context, task
from airflow.sdk.exceptions import AirflowFailException
from by_clock import by_clock
from reconcile_job import ReconcileJob
from report_link import compared
from spark_job import BATCH, JOB
from view_assets import recomputed_views, view_asset

from truelog.support.settings import Settings
from truelog.views import catalogue

VIEWS = catalogue.view_names(Settings().views_folder)

ABOUT = """
The proof. Each view is rebuilt from the archive at the exact positions where its streamed table stands, and compared
row for row; rows that differ are replaced by the rebuild's, and compared again, while the stream goes on. Then Great
Expectations judges: nothing differs, no rows are missing, the view's own checks hold.

It runs every hour, whenever `recompute` has made partials (and said whether to repair), and by hand: choose views,
`from_raw` to leave partials and typed columns aside and parse the raw bytes again, and whether to repair. The hourly
runs also hold a share of the partials against the raw bytes, so that each is proved once a day, and replace those that
differ. `compare` and `validate` link the report.

Each comparison is a row of `truelog.reconciliation` (the first differing rows with both values), each judgement one of
`truelog.validation`, each row that was repaired one of `truelog.repair`, as it was before and after. An equal view gets
a certificate, which `truelog verify` proves again from the archive alone.

**Red** means that it is not proved that some view shows what the log says. What to do first, by the task that is red:

* `validate`: the log names what failed. *No row differs*: too many rows differ for a repair to be safe
  (`TRUELOG_REPAIR_SHARE`, `TRUELOG_REPAIR_ROWS`), or they differ again after it. Look at
  `recon.<view>_v<version>_diff`, which names the cause of each row as far as it is known; run this DAG with
  `from_raw`: if that is equal, a partial is spoilt, and recomputing its day mends it. If not, `truelog archive audit`
  tells whether the archive is whole; where it is, run it once more with `repair` and report the fault.
  *A check*: rows that equal their rebuild break the view's own rule: producers send what its author did not foresee.
  *Could not be compared*: the view's file is broken, or its code changed under the same `version`; the reason is
  given. Mend the file, or raise the version. The other views have been compared all the same.
* `compare`: UNKNOWN says that the archive is behind, which is neither equal nor different: see that `stream_archive`
  is healthy; the task tries again.
"""


@task
def choose(params: dict[str, Any], dag_run: Any, triggering_asset_events: Any) -> list[str]:
    """The views whose new partials started this run; otherwise the views in the run's parameters, by default all."""
    recomputed = recomputed_views(dag_run, triggering_asset_events)
    return list(params["views"]) if recomputed is None else sorted(recomputed)


@compared(
    trigger_rule="all_done",
    map_index_template="{{ label }}",
    retries=0,
    max_active_tis_per_dagrun=2,
)
def validate(view: str, run_id: str) -> None:
    """Also where another view could not be compared; in the end the run is as red as its worst view."""
    from truelog.reconcile import reconcile_checks

    get_current_context()["label"] = view  # type: ignore[typeddict-unknown-key]
    found = reconcile_checks.validate_run(Settings(), run_id, view)
    if not found.success:
        raise AirflowFailException(f"{view}: this does not hold: {'; '.join(found.failed)}")


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
        "repair": Param(True, type="boolean", title="Repair", description="Replace what differs, and compare again."),
    },
    doc_md=ABOUT,
):
    views = choose()
    ReconcileJob(task_id="compare", views=views, **JOB) >> validate.expand(view=views)
