"""Alerts: open and resolved alerts with their runbooks, acknowledgements and silences."""

from datetime import timedelta
from functools import partial
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Depends, HTTPException
from pydantic import BaseModel, Field

from pages import task_logs
from pages.access import SignedIn, may_handle_alerts, require_own_page
from pages.answer import Answer, parts
from pages.data import OF_STREAMS
from truelog.alerts import scheduler as alert_scheduler
from truelog.alerts import store as alert_store
from truelog.alerts.kind import KINDS
from truelog.alerts.rules import Alert
from truelog.control import application
from truelog.lag import limits as lag_limits
from truelog.storage import db_snapshot
from truelog.storage.database import connect
from truelog.support.settings import PROJECT, Settings

router = APIRouter()
ACTIONS = [Depends(require_own_page)]
_RESOLVED = 100
_MAX_SILENCE_HOURS = 14 * 24.0  # maintenance needs no longer silence
Text = Annotated[str, Field(min_length=1, max_length=500, pattern=r"^[^\x00]*$")]


class AlertKey(BaseModel):
    key: Text


class SilenceRequest(BaseModel):
    """A silence. The reason is required, because other people will ask for it."""

    pattern: Text
    hours: float = Field(gt=0, le=_MAX_SILENCE_HOURS)
    why: Text


class SilenceId(BaseModel):
    id: int


def handler(user: SignedIn) -> str:
    """The user's name, if the user may handle alerts."""
    if not may_handle_alerts(user):
        raise HTTPException(403, "You may not handle alerts. This requires permission to trigger the streams DAG")
    return user.get_name()


Handler = Annotated[str, Depends(handler)]


@router.get("/data/alerts", dependencies=OF_STREAMS)
def all_alerts(user: SignedIn) -> Answer:
    with db_snapshot.read_snapshot(Settings()) as connection:
        causes = alert_store.causes(connection, partial(lag_limits.application_of_reader, Settings()))
        opened = alert_store.open_alerts(connection)
        return Answer(
            open=[_as_dict(each) | {"follows_from": causes.get(each.key)} for each in opened],
            resolved=[_as_dict(each) for each in alert_store.resolved_alerts(connection, _RESOLVED)],
            silences=alert_store.active_silences(connection),
            neglected=alert_scheduler.overdue_sources(connection),
            logs=task_logs.task_logs(application.application_names(Settings())),
            may_handle=may_handle_alerts(user),
        )


@router.get("/data/runbook", dependencies=OF_STREAMS)
def runbook(kind: str) -> Answer:
    if kind not in KINDS:
        raise HTTPException(404, f"No alert kind {kind!r}")
    return Answer(kind=kind, text=(PROJECT / "docs" / "runbooks" / f"{kind}.md").read_text("utf-8"))


@router.post("/alerts/acknowledge", dependencies=ACTIONS)
def acknowledge(request: AlertKey, by: Handler) -> Answer:
    with connect(Settings()) as connection:
        return Answer(**_as_dict(alert_store.acknowledge(connection, request.key, by)))


@router.post("/alerts/silence", dependencies=ACTIONS)
def silence(request: SilenceRequest, by: Handler) -> Answer:
    span = timedelta(hours=request.hours)
    with connect(Settings()) as connection:
        return Answer(**parts(alert_store.add_silence(connection, request.pattern, span, by=by, why=request.why)))


@router.post("/alerts/unsilence", dependencies=ACTIONS)
def unsilence(request: SilenceId, by: Handler) -> Answer:
    with connect(Settings()) as connection:
        alert_store.end_silence(connection, request.id, by)
    return Answer(id=request.id, by=by)


def _as_dict(alert: Alert) -> dict[str, Any]:
    kind = alert.definition
    texts = {"severity": kind.severity, "means": kind.meaning.format(subject=alert.subject), "first": kind.first_step}
    texts |= {
        "page": kind.page.format(subject=quote(alert.subject, safe="")),
        "dag": kind.dag.format(subject=alert.subject),
    }
    return {"key": alert.key} | texts | parts(alert)
