"""What a signed-in user may do, so that pages can say what the user may not, and who may."""

from collections.abc import Callable
from dataclasses import dataclass

from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from fastapi import APIRouter

from pages import access
from pages.access import Dag, SignedIn
from pages.answer import Answer, parts
from truelog.control.application import STREAM
from truelog.spark.submit import SPARK

router = APIRouter(prefix="/data")


@dataclass(frozen=True)
class Right:
    """An action of the pages, and the permission in Airflow that it requires."""

    name: str
    action: str
    requires: str
    roles: str  # that have the permission by default
    granted: Callable[[BaseUser], bool]


_ENGINEERS, _OPERATORS = "User, Op and Admin", "Op and Admin"


def _trigger(name: str, dag: Dag, action: str, granted: Callable[[BaseUser], bool]) -> Right:
    return Right(name, action, f"trigger the {dag} DAG", _ENGINEERS, granted)


RIGHTS = (
    Right(
        "restart",
        "Restart an application",
        "clear tasks of its DAG",
        _ENGINEERS,
        lambda user: access.may_restart(user, STREAM),
    ),
    Right("stop", "Stop or start an application", f"edit the connection {SPARK}", _OPERATORS, access.may_stop),
    _trigger("alerts", Dag.STREAMS, "Acknowledge and silence alerts", access.may_handle_alerts),
    _trigger("compare", Dag.RECONCILE, "Compare, repair and explain; see and save raw data", access.may_compare),
    _trigger("replay", Dag.RECONCILE, "Send dead letters again", access.may_replay),
    _trigger("backfill", Dag.RECOMPUTE, "Recompute days", access.may_backfill),
    _trigger("cut_over", Dag.CUT_OVER, "Move readers between versions", access.may_cut_over),
    _trigger("validate", Dag.QUALITY, "Validate a log day", access.may_validate),
    _trigger("verify", Dag.VERIFY, "Verify a certificate", access.may_verify),
)


@router.get("/rights")
def rights(user: SignedIn) -> Answer:
    """What this user may do, and what not, with the permission that is required."""
    return Answer(rights=[parts(each) | {"granted": each.granted(user)} for each in RIGHTS])
