"""Backfills of `recompute`, from Airflow's tables: who started a backfill, its views, and the progress of its days.

The page starts, pauses and cancels backfills through Airflow's own API on behalf of the user, so Airflow checks the
permission and records the name. That API returns neither a run's backfill nor the user who started a backfill. This
module runs inside Airflow's api-server and reads both from Airflow's tables.

A later backfill of the same day reuses Airflow's run. Each backfill shows its own attempt at that run.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import date
from typing import Annotated, Any

from airflow.models.backfill import Backfill, BackfillDagRun
from airflow.models.dagrun import DagRun
from airflow.utils.session import create_session
from airflow.utils.state import State
from fastapi import APIRouter, Depends, HTTPException, Query
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from pages import estimate, triggered_runs, waiting
from pages.access import Dag, SignedIn, may_backfill, may_read
from pages.answer import Answer
from pages.attempts import Attempt, attempts
from pages.triggered_runs import Announcement
from truelog.batch import recomputation
from truelog.batch.recomputation import DayState, States
from truelog.reports import partials as partial_report
from truelog.reports import view as view_report
from truelog.storage import db_snapshot
from truelog.support.settings import Settings
from truelog.views import catalogue

router = APIRouter()
READERS = [Depends(may_read(Dag.RECOMPUTE))]
SHOWN = 5  # backfills on a page
_MOST_DAYS = 92  # of the grid
_MOST_SKIPPED = 1_000_000
WAITING, RUNNING, DONE, FAILED = "waiting", "running", "done", "failed"
NO_LOG_DAY, NOT_RUN = "no log day", "not run"
_RUNS = {"queued": WAITING, "running": RUNNING, "success": DONE, "failed": FAILED}
_SKIPPED_DAYS = {"already exists": "already done", "in flight": "already running"}
_TASKS = {
    **dict.fromkeys(("running", "deferred", "up_for_retry", "up_for_reschedule", "restarting"), RUNNING),
    **dict.fromkeys(("failed", "upstream_failed"), FAILED),
    "success": DONE,
    "skipped": NO_LOG_DAY,
}
_NEVER_BEGAN = {"skipped", "upstream_failed"}  # Airflow decides these states for all jobs at once


@router.get("/data/backfills", dependencies=READERS)
def backfills(user: SignedIn, skip: Annotated[int, Query(ge=0, le=_MOST_SKIPPED)] = 0) -> Answer:
    """Backfills with their days, newest first, and the views that the form offers."""
    known = catalogue.view_names(Settings().views_folder)
    ours = select(Backfill).where(Backfill.dag_id == Dag.RECOMPUTE)
    with create_session() as session:
        total = session.scalar(select(func.count()).select_from(ours.subquery()))
        page = ours.order_by(Backfill.id.desc()).offset(skip).limit(SHOWN)
        found = [_as_dict(session, each, known) for each in session.scalars(page)]
    return Answer(backfills=found, total=total, views=known, may_backfill=may_backfill(user))


@router.get("/data/partials", dependencies=READERS)
def recomputed_days(since: date, until: date) -> Answer:
    """The grid of days and views, and what a backfill of each view costs."""
    if not 0 <= (until - since).days < _MOST_DAYS:
        raise HTTPException(400, f"Choose a range of 1 to {_MOST_DAYS} days")
    settings = Settings()
    views = catalogue.view_names(settings.views_folder)
    with db_snapshot.read_snapshot(settings) as connection:
        found = partial_report.partial_days(connection, views, since, until)
        logged = partial_report.days_with_log(connection, since, until)
    return Answer(views=views, days=found, log_days=logged, costs=view_report.backfill_costs(settings, views))


def _as_dict(session: Session, backfill: Backfill, known: Sequence[str]) -> dict[str, Any]:
    conf = backfill.dag_run_conf or {}
    days = _days(session, backfill, known)
    return {
        "id": backfill.id,
        "begins": backfill.from_date,
        "ends": backfill.to_date,
        "views": list(dict.fromkeys(view for each in days for view in each["views"])) or conf.get("views", known),
        "repair": conf.get("repair", True),
        "by": backfill.triggering_user_name,
        "at": backfill.created_at,
        "paused": backfill.is_paused,
        "completed_at": backfill.completed_at,
        "days": days,
        "progress": _progress(session, days, runs=backfill.completed_at is None and not backfill.is_paused),
    }


def _progress(session: Session, days: Iterable[Mapping[str, Any]], *, runs: bool) -> dict[str, Any]:
    """How many views of days are done, and how many seconds the rest and its comparison take, if that is known."""
    cells = [(state, *day["progress"].get(view, (0, 0))) for day in days for view, state in day["views"].items()]
    ended = [state in (DONE, NO_LOG_DAY, FAILED) for state, _, _ in cells]
    share = sum(1.0 if over else done / of if of else 0.0 for over, (_, done, of) in zip(ended, cells, strict=True))
    left = estimate.seconds_left(session, len(cells) - share) if runs and share < len(cells) else None
    return {"done": sum(ended), "of": len(cells), "share": share / len(cells) if cells else 0.0, "seconds_left": left}


def _days(session: Session, backfill: Backfill, known: Sequence[str]) -> list[dict[str, Any]]:
    """The days of a backfill. `waits` is what a day's run waits for."""
    query = (
        select(BackfillDagRun, DagRun)
        .outerjoin(DagRun, BackfillDagRun.dag_run_id == DagRun.id)
        .where(BackfillDagRun.backfill_id == backfill.id)
        .order_by(BackfillDagRun.logical_date)
    )
    found = session.execute(query).tuples().all()
    runs = [run for _, run in found if run]
    made, announced = attempts(session, backfill, runs), triggered_runs.announcements([run.run_id for run in runs])
    states = _states(made.values())
    own = {run: [each for each in events if each.of(made[run])] for run, events in announced.items()}
    finished = triggered_runs.finished(each for events in own.values() for each in events)
    waits = waiting.waits(session, [run for run in runs if run.backfill_id == backfill.id])
    skipped: dict[str, Any] = {
        "run": None,
        "views": {},
        "progress": {},
        "report": None,
        "awaited": False,
        "waits": None,
    }
    return [
        {"day": day.logical_date, "state": _SKIPPED_DAYS.get(str(day.exception_reason), "skipped"), **skipped}
        if run is None
        else {"day": day.logical_date, "run": run.run_id, "waits": waits.get(run.run_id)}
        | (outcome := _outcome(backfill, run, made[run.run_id], known, states))
        | _report(outcome["state"], own.get(run.run_id, ()), finished)
        for day, run in found
    ]


def _states(made: Iterable[Attempt]) -> dict[str, States]:
    """What the jobs of these attempts have recorded, by the id of their try."""
    jobs = [str(job.id) for attempt in made for job in attempt.jobs if job.ran]
    with db_snapshot.read_snapshot(Settings()) as connection:
        return recomputation.states(connection, jobs)


def _outcome(
    backfill: Backfill, run: DagRun, attempt: Attempt, known: Sequence[str], states: Mapping[str, States]
) -> dict[str, Any]:
    """The state of a day and of its views. After a takeover, both are as this backfill left them."""
    owned = run.backfill_id == backfill.id
    conf = (run.conf if owned else backfill.dag_run_conf) or {}
    over = not owned or run.state in State.finished_dr_states
    state = _RUNS[run.state] if owned else _final_state(attempt)
    return {"state": state} | _views(attempt, conf.get("views"), known, states, over=over)


def _final_state(attempt: Attempt) -> str:
    """`announce` is the last task, so it is done or skipped only if all earlier tasks are."""
    last = attempt.announcement
    done = _TASKS.get(last.state) in (DONE, NO_LOG_DAY) if last else _without_job(attempt) == NO_LOG_DAY
    return DONE if done else FAILED


def _views(
    attempt: Attempt, chosen: Sequence[str] | None, known: Sequence[str], states: Mapping[str, States], *, over: bool
) -> dict[str, Any]:
    """The state of each view, and how many of its log days are done, while there are several."""
    rest = _without_job(attempt) if over else WAITING
    rest = next((_TASKS[job.state] for job in attempt.jobs if job.state in _NEVER_BEGAN), rest)
    days: States = {}
    for job in (job for job in attempt.jobs if job.ran and job.state not in _NEVER_BEGAN):
        days, rest = states.get(str(job.id), {}), _TASKS.get(job.state, rest) if rest != FAILED else rest
    views = chosen or (days if days and over else dict.fromkeys([*known, *days]))
    return {
        "views": {view: _view_state(days.get(view, ()), rest) for view in views},
        "progress": {view: [by_day.count(DayState.DONE), len(by_day)] for view, by_day in days.items()},
    }


def _view_state(days: Sequence[DayState], job: str) -> str:
    """The state of a view. What the job left unfinished has the state of the job."""
    if DayState.FAILED in days:
        return FAILED
    if not days:
        return job
    if all(day is DayState.DONE for day in days):
        return DONE
    return WAITING if job == RUNNING and all(day is DayState.WAITING for day in days) else job


def _without_job(attempt: Attempt) -> str:
    """The state of a view whose job never began in a run that is over.

    When a run is repeated, Airflow discards the states of tasks that had no try. Such tasks were skipped if `plan`
    found no day, failed if an earlier task failed, and were otherwise cancelled.
    """
    if attempt.jobs:
        return NOT_RUN
    before = {each.task: _TASKS.get(each.state) for each in attempt.tries if each.ran}
    if before.get("plan") == DONE:
        return NO_LOG_DAY
    return FAILED if FAILED in before.values() else NOT_RUN


def _report(state: str, announced: Sequence[Announcement], finished: Collection[str]) -> dict[str, Any]:
    """This attempt's newest comparison that has ended with a result, and whether a first result is still expected."""
    ready = [each.comparison for each in announced if each.over and each.comparison in finished]
    awaited = state in (WAITING, RUNNING) or any(not each.over for each in announced)
    return {"report": ready[-1] if ready else None, "awaited": awaited and not ready}
