"""The job that compares views with their rebuilds, as a task."""

from typing import Any

from report_link import ReportLink
from spark_job import SparkJob
from view_assets import told

from truelog.support.settings import Settings


class ReconcileJob(SparkJob):
    """Done when every view could be compared, whatever came out; which run asked is kept with the results."""

    template_fields = (*SparkJob.template_fields, "views")
    operator_extra_links = (*SparkJob.operator_extra_links, ReportLink())

    def __init__(self, *, views: Any, **given: Any) -> None:
        super().__init__(script="reconcile.py", **given)
        self.views = views

    def execute(self, context: Any) -> None:
        """An archive that is behind may have come further at the next try."""
        from truelog.reconcile import reconcile_checks

        self.application_args = [*words(context), *self.views]
        super().execute(context)
        reconcile_checks.require_known(Settings(), context["run_id"])


def words(context: Any) -> list[str]:
    """What the job is told beside its views, by the run's form and by what has started it."""
    params, run = context["params"], context["dag_run"]
    chosen = [f"--{name.replace('_', '-')}" for name in ("from_raw", "repair") if params[name]]
    if run.run_type == "scheduled":  # what is proved each hour comes round once a day
        chosen.append("--prove")
    if run.run_type == "asset_triggered":
        spared = [view for view, repair in told(context["triggering_asset_events"]).items() if not repair]
        chosen += [word for view in sorted(spared) for word in ("--spare", view)]
    if run.triggering_user_name:
        chosen += ["--doer", run.triggering_user_name]
    return ["--run", context["run_id"], *chosen]
