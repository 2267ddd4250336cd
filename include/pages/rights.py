"""What a signed-in user may do, so that a page can say once what the user may not."""

from collections.abc import Callable
from dataclasses import dataclass

from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from fastapi import APIRouter

from pages import access
from pages.access import SignedIn
from pages.answer import Answer
from truelog.control.application import STREAM
from truelog.spark.submit import SPARK

router = APIRouter(prefix="/data")


@dataclass(frozen=True)
class Right:
    """An action of the pages, and the permission in Airflow that it requires."""

    action: str
    requires: str
    granted: Callable[[BaseUser], bool]


RIGHTS = (
    Right("Restart an application", "clear tasks of its DAG", lambda user: access.may_restart(user, STREAM)),
    Right("Stop or start an application", f"edit the connection {SPARK}", access.may_stop),
    Right("Acknowledge and silence alerts", "trigger the streams DAG", access.may_handle_alerts),
    Right("Compare, repair and explain; see and save raw data", "trigger the reconcile DAG", access.may_compare),
    Right("Send dead letters again", "trigger the reconcile DAG", access.may_replay),
    Right("Recompute days", "trigger the recompute DAG", access.may_backfill),
    Right("Move readers between versions", "trigger the cut_over DAG", access.may_cut_over),
    Right("Validate a log day", "trigger the quality DAG", access.may_validate),
    Right("Verify a certificate", "trigger the verify DAG", access.may_verify),
)


@router.get("/rights")
def rights(user: SignedIn) -> Answer:
    """What this user may do, and what not, with the permission that is required."""
    return Answer(
        rights=[{"action": each.action, "requires": each.requires, "granted": each.granted(user)} for each in RIGHTS]
    )
