"""The link from a task to what came of its run: the page *Reconciliations*, with the comparisons of that run alone."""

from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

from airflow.providers.standard.operators.python import PythonOperator
from airflow.sdk import BaseOperatorLink
from airflow.sdk.bases.decorator import DecoratedOperator, task_decorator_factory
from pages_plugin import PREFIX


class ReportLink(BaseOperatorLink):
    """A button on the task's page, once the task is done; it stays within Airflow's frame."""

    name = "Report"

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        """Of a run of `recompute`: of the comparisons that its partials have started."""
        return f"/plugin/truelog-reconciliations{PREFIX}/reconciliations?{urlencode({'run': ti_key.run_id})}"


class ReportedTask(DecoratedOperator, PythonOperator):
    """What a function that is decorated becomes."""

    custom_operator_name = "@reported"
    operator_extra_links = (ReportLink(),)

    def __init__(self, *, python_callable: Callable[..., Any], op_args: Any, op_kwargs: Any, **given: Any) -> None:
        upstream = {"python_callable": python_callable, "op_args": op_args, "op_kwargs": op_kwargs}
        super().__init__(kwargs_to_upstream=upstream, **upstream, **given)


def reported(**given: Any) -> Any:
    """As Airflow's `@task(…)`, with the link."""
    return task_decorator_factory(decorated_operator_class=ReportedTask, **given)
