"""Backfills of `recompute` as Airflow keeps them: who started each, what of, and how far its days are.

They are started, paused and cancelled by Airflow's own API, which the page calls in the name of whoever looks at it, so
that Airflow itself says who may, and keeps who did. That API does not tell whose a run is, nor who began a backfill:
both are read from Airflow's tables here, within its own api-server.
"""

from collections.abc import Sequence
from typing import Any

from airflow.models.backfill import Backfill, BackfillDagRun
from airflow.models.dagrun import DagRun
from airflow.models.taskinstance import TaskInstance
from airflow.utils.session import create_session
from airflow.utils.state import DagRunState
from fastapi import APIRouter, Depends
from sqlalchemy import select
from sqlalchemy.orm import Session

from pages import started
from pages.access import Dag, SignedIn, may_backfill, sees
from pages.data import Answer, now
from truelog import catalogue
from truelog.settings import Settings

router = APIRouter()
SHOWN = 5
WAITING, RUNNING, DONE, FAILED = "waiting", "running", "done", "failed"
NOTHING, NOT_DONE, TAKEN = "no log day", "not done", "taken over"
_RUNS = {"queued": WAITING, "running": RUNNING, "success": DONE, "failed": FAILED}
_LEFT_OUT = {"already exists": "was done", "in flight": "under way"}
_TASKS = {
    **dict.fromkeys(("running", "deferred", "up_for_retry", "up_for_reschedule", "restarting"), RUNNING),
    **dict.fromkeys(("failed", "upstream_failed"), FAILED),
    "success": DONE,
    "skipped": NOTHING,
}


@router.get("/data/backfills", dependencies=[Depends(sees(Dag.RECOMPUTE))])
def backfills(user: SignedIn) -> Answer:
    """The newest first, with the days of each; and what the form offers."""
    known = catalogue.names(Settings().views_folder)
    newest = select(Backfill).where(Backfill.dag_id == Dag.RECOMPUTE).order_by(Backfill.id.desc()).limit(SHOWN)
    with create_session() as session:
        found = [_plain(session, each, known) for each in session.scalars(newest)]
    return now(backfills=found, views=known, may_backfill=may_backfill(user))


def _plain(session: Session, backfill: Backfill, known: Sequence[str]) -> dict[str, Any]:
    conf = backfill.dag_run_conf or {}
    views = list(conf.get("views", known))
    return {
        "id": backfill.id,
        "begins": backfill.from_date,
        "ends": backfill.to_date,
        "views": views,
        "repair": conf.get("repair", True),
        "by": backfill.triggering_user_name,
        "at": backfill.created_at,
        "paused": backfill.is_paused,
        "completed_at": backfill.completed_at,
        "days": _days(session, backfill, views),
    }


def _days(session: Session, backfill: Backfill, views: Sequence[str]) -> list[dict[str, Any]]:
    asked = (
        select(BackfillDagRun, DagRun)
        .outerjoin(DagRun, BackfillDagRun.dag_run_id == DagRun.id)
        .where(BackfillDagRun.backfill_id == backfill.id)
        .order_by(BackfillDagRun.logical_date)
    )
    found = session.execute(asked).tuples().all()
    runs = [run.run_id for _, run in found if run]
    jobs, reports = _jobs(session, runs), started.comparisons(runs)
    return [
        {
            "day": of.logical_date,
            "run": run and run.run_id,
            "state": _state(of, run),
            "views": _views(jobs.get(run.run_id, {}), views, run.state) if run else {},
            "compared": bool(run and run.run_id in reports),
        }
        for of, run in found
    ]


def _state(of: BackfillDagRun, run: DagRun | None) -> str:
    if run is None:
        return _LEFT_OUT.get(str(of.exception_reason), "left out")
    return _RUNS[run.state] if run.backfill_id == of.backfill_id else TAKEN


def _jobs(session: Session, runs: Sequence[str]) -> dict[str, dict[int, str]]:
    """By run, what each job is, in the order of the run's views; -1 stands for all of them before they are planned."""
    asked = select(TaskInstance.run_id, TaskInstance.map_index, TaskInstance.state).where(
        TaskInstance.dag_id == Dag.RECOMPUTE, TaskInstance.task_id == "recompute", TaskInstance.run_id.in_(runs)
    )
    jobs: dict[str, dict[int, str]] = {}
    for run, index, state in session.execute(asked).tuples():
        jobs.setdefault(run, {})[index] = _TASKS.get(str(state), WAITING)
    return jobs


def _views(jobs: dict[int, str], views: Sequence[str], state: str) -> dict[str, str]:
    """What still waits in a run that is over is waited for in vain: it was cancelled, or failed before."""
    waits = NOT_DONE if state == DagRunState.FAILED else WAITING
    found = (jobs.get(index, jobs.get(-1, WAITING)) for index in range(len(views)))
    return {view: waits if job == WAITING else job for view, job in zip(views, found, strict=True)}
