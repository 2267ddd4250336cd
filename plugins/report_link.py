"""Links from a task to its results: a Truelog page, and the Data Docs of the validation of an event type.

The links appear once the task is done and open inside Airflow.
"""

from collections.abc import Callable, Collection
from typing import Any
from urllib.parse import urlencode

from airflow.providers.standard.operators.python import PythonOperator
from airflow.sdk import BaseOperatorLink
from airflow.sdk.bases.decorator import DecoratedOperator, task_decorator_factory
from pages_plugin import PLUGIN


class ReportLink(BaseOperatorLink):
    """The *Reconciliations* page, filtered by this run."""

    name = "Report"

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        return _reconciliations_page(run=ti_key.run_id)


class AttemptLink(BaseOperatorLink):
    """The *Reconciliations* page, with the comparisons that this attempt's partials started.

    The worker creates the link when the task is done and passes the task instance as `ti_key`.
    """

    name = "Report"

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        return _reconciliations_page(run=ti_key.run_id, attempt=ti_key.id)


def _reconciliations_page(**parameters: object) -> str:
    return f"{PLUGIN}/reconciliations?{urlencode(parameters)}"


class QualityLink(BaseOperatorLink):
    """The *Quality* page, with the log days of the task's event type."""

    name = "Report"

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        return f"{PLUGIN}/quality?{urlencode({'of': operator.op_kwargs['event']})}"


class DataDocsLink(BaseOperatorLink):
    """The Data Docs of the task's event type, rendered by Great Expectations."""

    name = "Data Docs"

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        parameters = {"run": ti_key.run_id, "of": operator.op_kwargs["event"]}
        return f"{PLUGIN}/data-docs?{urlencode(parameters)}"


class ReportedTask(DecoratedOperator, PythonOperator):
    """A decorated function with report links."""

    custom_operator_name = "@reported"
    operator_extra_links: Collection[BaseOperatorLink] = (AttemptLink(),)

    def __init__(self, *, python_callable: Callable[..., Any], op_args: Any, op_kwargs: Any, **kwargs: Any) -> None:
        upstream = {"python_callable": python_callable, "op_args": op_args, "op_kwargs": op_kwargs}
        super().__init__(kwargs_to_upstream=upstream, **upstream, **kwargs)


def reported(**kwargs: Any) -> Any:
    """Airflow's `@task(…)` with a link to the comparisons that this attempt started."""
    return task_decorator_factory(decorated_operator_class=ReportedTask, **kwargs)


class ComparedTask(ReportedTask):
    """Validates the comparisons of a run."""

    custom_operator_name = "@compared"
    operator_extra_links = (ReportLink(),)


class JudgedTask(ReportedTask):
    """Validates the log days of an event type."""

    custom_operator_name = "@judged"
    operator_extra_links = (QualityLink(), DataDocsLink())


def compared(**kwargs: Any) -> Any:
    return task_decorator_factory(decorated_operator_class=ComparedTask, **kwargs)


def judged(**kwargs: Any) -> Any:
    return task_decorator_factory(decorated_operator_class=JudgedTask, **kwargs)
