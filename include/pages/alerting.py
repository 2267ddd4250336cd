"""Alerts on their page: what is open and was, with its runbook; and what people do about it."""

from dataclasses import asdict
from datetime import timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Depends, HTTPException
from pydantic import BaseModel, Field

from pages.access import SignedIn, from_our_own_pages, may_handle_alerts
from pages.data import OF_STREAMS, Answer, now
from truelog.alerts import alert_store, alert_watch
from truelog.alerts.alert import Alert
from truelog.alerts.alert_kind import KINDS, RENAMED, former_kind
from truelog.storage import db_snapshot
from truelog.storage.database import connect
from truelog.support.settings import PROJECT, Settings

router = APIRouter()
ACTS = [Depends(from_our_own_pages)]
_RESOLVED = 100
_LONGEST = 14 * 24.0  # hours: what is silent for longer is not maintenance
Text = Annotated[str, Field(min_length=1, max_length=500, pattern=r"^[^\x00]*$")]


class Key(BaseModel):
    key: Text


class Wish(BaseModel):
    """A silence; a reason has to be given, for others will ask."""

    pattern: Text
    hours: float = Field(gt=0, le=_LONGEST)
    why: Text


class Number(BaseModel):
    id: int


def handler(user: SignedIn) -> str:
    """The name of somebody who may handle alerts."""
    if not may_handle_alerts(user):
        raise HTTPException(403, "you may not handle alerts: it takes the right to trigger the DAG streams")
    return user.get_name()


Handler = Annotated[str, Depends(handler)]


@router.get("/data/alerts", dependencies=OF_STREAMS)
def found(user: SignedIn) -> Answer:
    with db_snapshot.read_snapshot(Settings()) as connection:
        return now(
            open=[_plain(each) for each in alert_store.open_alerts(connection)],
            resolved=[_plain(each) for each in alert_store.resolved_alerts(connection, _RESOLVED)],
            silences=[asdict(each) for each in alert_store.active_silences(connection)],
            neglected=alert_watch.overdue_sources(connection),
            may_handle=may_handle_alerts(user),
        )


@router.get("/data/runbook", dependencies=OF_STREAMS)
def runbook(kind: str) -> Answer:
    kind = RENAMED.get(kind, kind)
    if kind not in KINDS:
        raise HTTPException(404, f"there is no kind of alert {kind!r}")
    return now(kind=kind, text=(PROJECT / "docs" / "runbooks" / f"{kind}.md").read_text("utf-8"))


@router.post("/alerts/acknowledge", dependencies=ACTS)
def acknowledge(asked: Key, by: Handler) -> dict[str, Any]:
    with connect(Settings()) as connection:
        return _plain(alert_store.acknowledge(connection, asked.key, by))


@router.post("/alerts/silence", dependencies=ACTS)
def silence(asked: Wish, by: Handler) -> dict[str, Any]:
    with connect(Settings()) as connection:
        return asdict(
            alert_store.add_silence(connection, asked.pattern, timedelta(hours=asked.hours), by=by, why=asked.why)
        )


@router.post("/alerts/unsilence", dependencies=ACTS)
def unsilence(asked: Number, by: Handler) -> dict[str, Any]:
    with connect(Settings()) as connection:
        alert_store.end_silence(connection, asked.id, by)
    return {"id": asked.id, "by": by}


def _plain(alert: Alert) -> dict[str, Any]:
    means = alert.means
    said = {"severity": means.severity, "means": means.means.format(subject=alert.subject), "first": means.first}
    return {"key": alert.key, "former_kind": former_kind(alert.kind)} | said | asdict(alert)
