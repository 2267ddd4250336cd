"""The Airflow task that compares views with their rebuilds in a Spark job."""

from datetime import UTC, datetime
from typing import Any

from report_link import ReportLink
from spark_job import SparkJob
from view_assets import recomputed_views

from truelog.support.settings import Settings

BEGAN = "began"  # the XCom of when the task's last try began; what the run compared before that does not count


class ReconcileJob(SparkJob):
    """Succeeds if every view could be compared, whatever the verdicts. The run id is stored with the results."""

    template_fields = (*SparkJob.template_fields, "views")
    operator_extra_links = (*SparkJob.operator_extra_links, ReportLink())

    def __init__(self, *, views: Any, **kwargs: Any) -> None:
        super().__init__(script="reconcile.py", **kwargs)
        self.views = views

    def execute(self, context: Any) -> None:
        """Fail if a view is UNKNOWN, because a lagging archive may catch up before the next try."""
        from truelog.reconcile import reconcile_checks

        context["ti"].xcom_push(key=BEGAN, value=datetime.now(UTC).isoformat())
        self.application_args = [*job_options(context), *self.views]
        super().execute(context)
        reconcile_checks.require_conclusive(Settings(), context["run_id"])


def job_options(context: Any) -> list[str]:
    """The job's options, derived from the run's parameters and from what started the run."""
    params, run = context["params"], context["dag_run"]
    options = [f"--{name.replace('_', '-')}" for name in ("from_raw", "repair") if params[name]]
    if run.run_type == "scheduled":  # the hourly runs together prove every partial once a day
        options += ["--audit-partials", *([] if params["from_raw"] else ["--incremental"])]
    recomputed = recomputed_views(run, context["triggering_asset_events"]) or {}
    for view in sorted(view for view, repair in recomputed.items() if not repair):
        options += ["--exclude-from-repair", view]
    if run.triggering_user_name:
        options += ["--doer", run.triggering_user_name]
    return ["--run", context["run_id"], *options]
