"""Permissions. Airflow's auth manager makes every decision, so a page grants no right that Airflow does not.

| action | required permission in Airflow |
| --- | --- |
| see a page | read the DAG that the page shows |
| see *Components* | change the connection that all applications use, as administrators may |
| restart an application | clear a task of the application's DAG, which also restarts the application |
| stop or start an application | change the connection that all applications use, because a stop has no time limit |
| backfill | trigger `recompute` |
| acknowledge or silence alerts | trigger `streams`, as on-call engineers may |
| compare or repair views | trigger `reconcile` |
| validate a log day | trigger `quality` |
| move readers between versions of a view | trigger `cut_over` |
| verify a certificate | trigger `verify` |
| start an explanation | trigger `explain`, and the right to look at archived records |
| send dead letters again | trigger `reconcile`, as engineers may |
| save rows, look at archived records and explanations | trigger `reconcile`, as engineers may |
"""

from collections.abc import Callable
from enum import StrEnum
from typing import Annotated

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from airflow.api_fastapi.auth.managers.models.resource_details import ConnectionDetails, DagAccessEntity, DagDetails
from airflow.api_fastapi.core_api.security import get_user
from fastapi import Depends, HTTPException, Request

from truelog.spark.submit import SPARK

SignedIn = Annotated[BaseUser, Depends(get_user)]


class Dag(StrEnum):
    """The DAGs whose permissions apply to pages."""

    STREAMS = "streams"
    RECONCILE = "reconcile"
    RECOMPUTE = "recompute"
    VERIFY = "verify"
    EXPLAIN = "explain"
    QUALITY = "quality"
    CUT_OVER = "cut_over"


def may_read(dag: Dag) -> Callable[..., None]:
    """Return a dependency for routes that show this DAG's data."""

    def check(user: SignedIn) -> None:
        if not is_readable(user, dag):
            raise HTTPException(403, f"You may not read the {dag} DAG")

    return check


def is_readable(user: BaseUser, dag: Dag) -> bool:
    return get_auth_manager().is_authorized_dag(method="GET", details=DagDetails(id=dag), user=user)


def may_restart(user: BaseUser, application: str) -> bool:
    dag = DagDetails(id=f"stream_{application}")
    task = DagAccessEntity.TASK_INSTANCE
    return get_auth_manager().is_authorized_dag(method="PUT", access_entity=task, details=dag, user=user)


def may_stop(user: BaseUser) -> bool:
    connection = ConnectionDetails(conn_id=SPARK)
    return get_auth_manager().is_authorized_connection(method="PUT", details=connection, user=user)


def administrator(user: SignedIn) -> None:
    """A dependency for the routes that only administrators need. An administrator may change the connection."""
    if not may_stop(user):
        raise HTTPException(403, "Only administrators may open this page")


def may_handle_alerts(user: BaseUser) -> bool:
    return _may_trigger(user, Dag.STREAMS)


def may_backfill(user: BaseUser) -> bool:
    """Whether to offer a backfill. Airflow's own route repeats the check."""
    return _may_trigger(user, Dag.RECOMPUTE)


def may_compare(user: BaseUser) -> bool:
    """Whether to offer comparisons and repairs. Airflow's own route repeats the check."""
    return _may_trigger(user, Dag.RECONCILE)


def may_replay(user: BaseUser) -> bool:
    """Whether to offer to send dead letters again, and whether to do it."""
    return _may_trigger(user, Dag.RECONCILE)


def may_validate(user: BaseUser) -> bool:
    """Whether to offer validations of log days. Airflow's own route repeats the check."""
    return _may_trigger(user, Dag.QUALITY)


def may_cut_over(user: BaseUser) -> bool:
    """Whether to offer to move the readers of a view between versions, and whether to do it."""
    return _may_trigger(user, Dag.CUT_OVER)


def may_verify(user: BaseUser) -> bool:
    """Whether to offer verifications. Airflow's own route repeats the check."""
    return _may_trigger(user, Dag.VERIFY)


def data_reader(user: SignedIn) -> str:
    """The user's name, if the user may take data out of the platform or look at archived records."""
    if not may_compare(user):
        raise HTTPException(
            403, "You may not save or read raw data. This requires permission to trigger the reconcile DAG"
        )
    return user.get_name()


DataReader = Annotated[str, Depends(data_reader)]


def _may_trigger(user: BaseUser, dag: Dag) -> bool:
    details, run = DagDetails(id=dag), DagAccessEntity.RUN
    return get_auth_manager().is_authorized_dag(method="POST", access_entity=run, details=details, user=user)


def require_own_page(request: Request) -> None:
    """Refuse requests from other sites. Their pages can send cookies, but a custom header needs our consent first."""
    headers = request.headers
    if "x-truelog" not in headers or headers.get("sec-fetch-site", "same-origin") != "same-origin":
        raise HTTPException(403, "Use the button on the page or send the X-Truelog header")
