"""The Airflow task that recomputes the partials of all views of a run in one Spark application."""

from typing import Any

from spark_job import SparkJob


class RecomputeJob(SparkJob):
    """Recomputes the planned days and views. The progress is stored under the id of this try."""

    template_fields = (*SparkJob.template_fields, "planned")

    def __init__(self, *, planned: Any, **kwargs: Any) -> None:
        super().__init__(script="recompute.py", **kwargs)
        self.planned = planned

    def execute(self, context: Any) -> None:
        """Fail if a view failed. Then a retry recomputes all views."""
        self.application_args = arguments(self.planned, context["run_id"], str(context["ti"].id))
        super().execute(context)


def arguments(planned: dict[str, Any], run: str, attempt: str) -> list[str]:
    """The arguments of the application."""
    days = [argument for day in planned["days"] for argument in ("--day", day)]
    unfinished = ["--open"] if planned["unfinished"] else []
    return ["--run", run, "--attempt", attempt, *days, *unfinished, *planned["views"]]
