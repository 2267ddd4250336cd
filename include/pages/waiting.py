"""Why runs of Airflow wait: for a slot of a pool or for another run of their DAG, and who started that run."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from airflow.models.dagrun import DagRun
from airflow.models.pool import Pool
from airflow.models.taskinstance import TaskInstance
from airflow.ti_deps.dependencies_states import EXECUTION_STATES
from airflow.utils.state import DagRunState, TaskInstanceState
from sqlalchemy import select
from sqlalchemy.orm import Session


@dataclass(frozen=True)
class Wait:
    """What a run waits for: `run` of `dag`, which `by` started, or which Airflow started if `by` is None."""

    reason: str
    dag: str
    run: str
    by: str | None


def waits(session: Session, runs: Collection[DagRun]) -> dict[str, Wait]:
    """What each of these runs waits for, by run id. A run whose task or whose own start is not delayed is left out."""
    queued = [run for run in runs if run.state == DagRunState.QUEUED]
    begun = [run for run in runs if run.state == DagRunState.RUNNING]
    return _for_runs(session, queued) | _for_slots(session, begun)


def _for_runs(session: Session, queued: Sequence[DagRun]) -> dict[str, Wait]:
    """A DAG limits how many of its runs are active."""
    if not queued:
        return {}
    dags = {run.dag_id for run in queued}
    active = select(DagRun).where(DagRun.dag_id.in_(dags), DagRun.state == DagRunState.RUNNING).order_by(DagRun.id)
    first: dict[str, DagRun] = {}
    for run in session.scalars(active):
        first.setdefault(run.dag_id, run)
    reason = "until another run of its DAG ends"
    return {run.run_id: _wait(reason, first[run.dag_id]) for run in queued if run.dag_id in first}


def _for_slots(session: Session, begun: Sequence[DagRun]) -> dict[str, Wait]:
    """A pool limits how many tasks run at once. A run that has a slot itself makes progress, so it is left out."""
    pending = select(TaskInstance.run_id, TaskInstance.pool).where(
        TaskInstance.dag_id.in_({run.dag_id for run in begun}),
        TaskInstance.run_id.in_([run.run_id for run in begun]),
        TaskInstance.state == TaskInstanceState.SCHEDULED,
    )
    pools = dict(session.execute(pending).tuples().all()) if begun else {}
    users = {pool: _users(session, pool) for pool in set(pools.values())}
    return {
        run: _wait(f"for a slot of the pool {pool}", users[pool][0])
        for run, pool in pools.items()
        if users[pool] and run not in {each.run_id for each in users[pool]}
    }


def _users(session: Session, pool: str) -> list[DagRun]:
    """The runs whose tasks have all slots of a pool. Empty if a slot is free.

    A queued task has its slot before it runs.
    """
    slots = session.scalar(select(Pool.slots).where(Pool.pool == pool))
    using = (
        select(DagRun)
        .join(TaskInstance, (TaskInstance.dag_id == DagRun.dag_id) & (TaskInstance.run_id == DagRun.run_id))
        .where(TaskInstance.pool == pool, TaskInstance.state.in_(EXECUTION_STATES))
        .order_by(DagRun.id)
    )
    found = list(session.scalars(using))
    return found if slots is not None and 0 <= slots <= len(found) else []


def _wait(reason: str, run: DagRun) -> Wait:
    return Wait(reason, run.dag_id, run.run_id, run.triggering_user_name)
