"""Links from a task to what came of its run: the page that shows it, and Data Docs of what was judged.

Both open within Airflow's frame, once the task is done.
"""

from collections.abc import Callable, Collection
from typing import Any
from urllib.parse import urlencode

from airflow.providers.standard.operators.python import PythonOperator
from airflow.sdk import BaseOperatorLink
from airflow.sdk.bases.decorator import DecoratedOperator, task_decorator_factory
from pages_plugin import PREFIX


class ReportLink(BaseOperatorLink):
    """The page *Reconciliations*, with the comparisons of that run alone."""

    name = "Report"

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        return _reconciliations(run=ti_key.run_id)


class AttemptLink(BaseOperatorLink):
    """The page *Reconciliations*, with the comparisons that the partials of this attempt have started.

    The worker makes the link when the task is done, and gives the task instance as `ti_key`.
    """

    name = "Report"

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        return _reconciliations(run=ti_key.run_id, attempt=ti_key.id)


def _reconciliations(**asked: object) -> str:
    return f"/plugin/truelog-reconciliations{PREFIX}/reconciliations?{urlencode(asked)}"


class QualityLink(BaseOperatorLink):
    """The page *Quality*, with the log days of the task's event type."""

    name = "Report"

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        return f"/plugin/truelog-quality{PREFIX}/quality?{urlencode({'of': operator.op_kwargs['event']})}"


class DataDocsLink(BaseOperatorLink):
    """What Great Expectations' renderer made of the judgement of the task's view or event type."""

    name = "Data Docs"

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        given = operator.op_kwargs
        asked = {"run": ti_key.run_id, "of": given["view"] if "view" in given else given["event"]}
        return f"/plugin/truelog-reconciliations{PREFIX}/data-docs?{urlencode(asked)}"


class ReportedTask(DecoratedOperator, PythonOperator):
    """What a function that is decorated becomes."""

    custom_operator_name = "@reported"
    operator_extra_links: Collection[BaseOperatorLink] = (AttemptLink(),)

    def __init__(self, *, python_callable: Callable[..., Any], op_args: Any, op_kwargs: Any, **given: Any) -> None:
        upstream = {"python_callable": python_callable, "op_args": op_args, "op_kwargs": op_kwargs}
        super().__init__(kwargs_to_upstream=upstream, **upstream, **given)


def reported(**given: Any) -> Any:
    """As Airflow's `@task(…)`, with the link."""
    return task_decorator_factory(decorated_operator_class=ReportedTask, **given)


class ComparedTask(ReportedTask):
    """One that judges a comparison."""

    custom_operator_name = "@compared"
    operator_extra_links = (ReportLink(), DataDocsLink())


class JudgedTask(ReportedTask):
    """One about an event type."""

    custom_operator_name = "@judged"
    operator_extra_links = (QualityLink(), DataDocsLink())


def compared(**given: Any) -> Any:
    return task_decorator_factory(decorated_operator_class=ComparedTask, **given)


def judged(**given: Any) -> Any:
    return task_decorator_factory(decorated_operator_class=JudgedTask, **given)
