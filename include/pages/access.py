"""Who may do what: asked of Airflow's own auth manager, so that a page gives no right that Airflow does not.

* to see: to read the DAG that the page is about
* to restart an application: to clear a task of its DAG, which does the same
* to stop or start one: to change the connection that all of them run by; a stop lasts until somebody ends it
* to backfill: to trigger `recompute`
* to acknowledge alerts and to silence them: to trigger the DAG that the alerts are about, as who is on call may
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
    """The DAGs that pages are about."""

    STREAMS = "streams"
    RECONCILE = "reconcile"
    RECOMPUTE = "recompute"


def sees(dag: Dag) -> Callable[..., None]:
    """For routes that show what this DAG is about."""

    def check(user: SignedIn) -> None:
        if not get_auth_manager().is_authorized_dag(method="GET", details=DagDetails(id=dag), user=user):
            raise HTTPException(403, f"you may not read the DAG {dag}")

    return check


def may_restart(user: BaseUser, application: str) -> bool:
    dag = DagDetails(id=f"stream_{application}")
    task = DagAccessEntity.TASK_INSTANCE
    return get_auth_manager().is_authorized_dag(method="PUT", access_entity=task, details=dag, user=user)


def may_stop(user: BaseUser) -> bool:
    by = ConnectionDetails(conn_id=SPARK)
    return get_auth_manager().is_authorized_connection(method="PUT", details=by, user=user)


def may_handle_alerts(user: BaseUser) -> bool:
    dag, run = DagDetails(id=Dag.STREAMS), DagAccessEntity.RUN
    return get_auth_manager().is_authorized_dag(method="POST", access_entity=run, details=dag, user=user)


def may_backfill(user: BaseUser) -> bool:
    """As Airflow's own route asks; this only says whether to offer it."""
    dag, run = DagDetails(id=Dag.RECOMPUTE), DagAccessEntity.RUN
    return get_auth_manager().is_authorized_dag(method="POST", access_entity=run, details=dag, user=user)


def from_our_own_pages(request: Request) -> None:
    """Another site's page sends cookies along, but cannot set a header of its own without asking first."""
    headers = request.headers
    if "x-truelog" not in headers or headers.get("sec-fetch-site", "same-origin") != "same-origin":
        raise HTTPException(403, "this is asked for by a button on one of the pages, or with the header X-Truelog")
