"""Backfills of `recompute` as Airflow keeps them: who started each, what of, and how far its days are.

They are started, paused and cancelled by Airflow's own API, which the page calls in the name of whoever looks at it, so
that Airflow itself says who may, and keeps who did. That API does not tell whose a run is, nor who began a backfill:
both are read from Airflow's tables here, within its own api-server.

A later backfill of the same day reuses Airflow's run. Each backfill shows its own attempt at that run.
"""

from collections.abc import Collection, Sequence
from typing import Any

from airflow.models.backfill import Backfill, BackfillDagRun
from airflow.models.dagrun import DagRun
from airflow.utils.session import create_session
from airflow.utils.state import State
from fastapi import APIRouter, Depends
from sqlalchemy import select
from sqlalchemy.orm import Session

from pages import started
from pages.access import Dag, SignedIn, may_backfill, sees
from pages.attempts import Attempt, Try, attempts
from pages.data import Answer, now
from pages.started import Announced
from truelog.support.settings import Settings
from truelog.views import catalogue

router = APIRouter()
SHOWN = 5
WAITING, RUNNING, DONE, FAILED = "waiting", "running", "done", "failed"
NOTHING, NOT_DONE = "no log day", "not done"
_RUNS = {"queued": WAITING, "running": RUNNING, "success": DONE, "failed": FAILED}
_LEFT_OUT = {"already exists": "was done", "in flight": "under way"}
_TASKS = {
    **dict.fromkeys(("running", "deferred", "up_for_retry", "up_for_reschedule", "restarting"), RUNNING),
    **dict.fromkeys(("failed", "upstream_failed"), FAILED),
    "success": DONE,
    "skipped": NOTHING,
}
_NEVER_BEGAN = {"skipped", "upstream_failed"}  # decided for all jobs at once


@router.get("/data/backfills", dependencies=[Depends(sees(Dag.RECOMPUTE))])
def backfills(user: SignedIn) -> Answer:
    """The newest first, with the days of each; and what the form offers."""
    known = catalogue.view_names(Settings().views_folder)
    newest = select(Backfill).where(Backfill.dag_id == Dag.RECOMPUTE).order_by(Backfill.id.desc()).limit(SHOWN)
    with create_session() as session:
        found = [_plain(session, each, known) for each in session.scalars(newest)]
    return now(backfills=found, views=known, may_backfill=may_backfill(user))


def _plain(session: Session, backfill: Backfill, known: Sequence[str]) -> dict[str, Any]:
    conf = backfill.dag_run_conf or {}
    days = _days(session, backfill, known)
    return {
        "id": backfill.id,
        "begins": backfill.from_date,
        "ends": backfill.to_date,
        "views": list(dict.fromkeys(view for day in days for view in day["views"])) or conf.get("views", known),
        "repair": conf.get("repair", True),
        "by": backfill.triggering_user_name,
        "at": backfill.created_at,
        "paused": backfill.is_paused,
        "completed_at": backfill.completed_at,
        "days": days,
    }


def _days(session: Session, backfill: Backfill, known: Sequence[str]) -> list[dict[str, Any]]:
    asked = (
        select(BackfillDagRun, DagRun)
        .outerjoin(DagRun, BackfillDagRun.dag_run_id == DagRun.id)
        .where(BackfillDagRun.backfill_id == backfill.id)
        .order_by(BackfillDagRun.logical_date)
    )
    found = session.execute(asked).tuples().all()
    runs = [run for _, run in found if run]
    made, announced = attempts(session, backfill, runs), started.announcements([run.run_id for run in runs])
    own = {run: [each for each in events if each.of(made[run])] for run, events in announced.items()}
    finished = started.finished(each for events in own.values() for each in events)
    left_out: dict[str, Any] = {"run": None, "views": {}, "report": None, "awaited": False}
    return [
        {"day": of.logical_date, "state": _LEFT_OUT.get(str(of.exception_reason), "left out"), **left_out}
        if run is None
        else {"day": of.logical_date, "run": run.run_id}
        | (outcome := _outcome(backfill, run, made[run.run_id], known))
        | _report(outcome["state"], own.get(run.run_id, ()), finished)
        for of, run in found
    ]


def _outcome(backfill: Backfill, run: DagRun, attempt: Attempt, known: Sequence[str]) -> dict[str, Any]:
    """A run that a later backfill took over keeps what this one left of it."""
    owned = run.backfill_id == backfill.id
    conf = (run.conf if owned else backfill.dag_run_conf) or {}
    over = not owned or run.state in State.finished_dr_states
    state = _RUNS[run.state] if owned else _left(attempt)
    return {"state": state, "views": _views(attempt, conf.get("views"), known, over=over)}


def _left(attempt: Attempt) -> str:
    """`announce` is the last task, and is done or skipped only where everything before it is."""
    last = attempt.announcement
    done = _TASKS.get(last.state) in (DONE, NOTHING) if last else _without_job(attempt) == NOTHING
    return DONE if done else FAILED


def _views(attempt: Attempt, chosen: Sequence[str] | None, known: Sequence[str], *, over: bool) -> dict[str, str]:
    rest = _without_job(attempt) if over else WAITING
    decided = next((_TASKS[job.state] for job in attempt.jobs if job.state in _NEVER_BEGAN), rest)
    ran = {_view(job, chosen): _TASKS.get(job.state, rest) for job in attempt.jobs if job.ran}
    views = chosen or (ran if ran and over else dict.fromkeys([*known, *ran]))
    return {view: ran.get(view, decided) for view in views}


def _without_job(attempt: Attempt) -> str:
    """What became of a view whose job never began, in a run that is over.

    When a run is repeated, Airflow drops what it decided about a task without a try of it: these tasks were skipped if
    `plan` found no day, failed if a task before them did, and were cancelled otherwise.
    """
    if attempt.jobs:
        return NOT_DONE
    before = {each.task: _TASKS.get(each.state) for each in attempt.tries if each.ran}
    if before.get("plan") == DONE:
        return NOTHING
    return FAILED if FAILED in before.values() else NOT_DONE


def _view(job: Try, chosen: Sequence[str] | None) -> str:
    """`plan` makes a job for each view that was chosen, in that order; without a choice, the job is named after it."""
    return chosen[job.index] if chosen and 0 <= job.index < len(chosen) else job.name.partition(" ")[0]


def _report(state: str, announced: Sequence[Announced], finished: Collection[str]) -> dict[str, Any]:
    """The newest comparison of this attempt that has a result; or whether one is to come."""
    ready = [each.comparison for each in announced if each.comparison in finished]
    awaited = state in (WAITING, RUNNING) or any(not each.over for each in announced)
    return {"report": ready[-1] if ready else None, "awaited": awaited and not ready}
