"""The job that compares views with their rebuilds, as a task."""

from typing import Any

from spark_job import SparkJob

from truelog.settings import Settings


class ReconcileJob(SparkJob):
    """Done when every view could be compared, whatever came out; which run asked is kept with the results."""

    template_fields = (*SparkJob.template_fields, "views")

    def __init__(self, *, views: Any, **given: Any) -> None:
        super().__init__(script="reconcile.py", **given)
        self.views = views

    def execute(self, context: Any) -> None:
        """An archive that is behind may have come further at the next try."""
        from truelog import validation

        params, run = context["params"], context["run_id"]
        chosen = [f"--{name.replace('_', '-')}" for name in ("from_raw", "repair") if params[name]]
        if context["dag_run"].run_type == "scheduled":  # what is proved each hour comes round once a day
            chosen.append("--prove")
        if asked_by := context["dag_run"].triggering_user_name:
            chosen += ["--doer", asked_by]
        self.application_args = ["--run", run, *chosen, *self.views]
        super().execute(context)
        validation.require_known(Settings(), run)
