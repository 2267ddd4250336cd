"""How long a backfill still takes: from the median of the jobs that have ended, so that the estimate is steady."""

from datetime import timedelta
from statistics import median

from airflow.models.dagrun import DagRun
from airflow.models.pool import Pool
from airflow.models.taskinstance import TaskInstance
from airflow.utils.state import DagRunState, TaskInstanceState
from airflow.utils.types import DagRunType
from sqlalchemy import select
from sqlalchemy.orm import Session

from pages.access import Dag
from truelog.batch import recomputation
from truelog.storage import db_snapshot
from truelog.support.settings import Settings

_JOBS, _COMPARISONS = 30, 20  # the newest
_TASK = "recompute"


def seconds_left(session: Session, rest: float) -> float | None:
    """The seconds for this many views of days and the comparison after them. None if no job has ended yet."""
    if (each := _seconds_of_each(session)) is None:
        return None
    return rest * each / _at_once(session) + _comparison(session)


def _seconds_of_each(session: Session) -> float | None:
    """The median of the time for one view of one day. A job computes several, so that its start counts in part."""
    jobs = (
        select(TaskInstance.id, TaskInstance.duration)
        .where(TaskInstance.dag_id == Dag.RECOMPUTE, TaskInstance.task_id == _TASK)
        .where(TaskInstance.state == TaskInstanceState.SUCCESS, TaskInstance.duration.is_not(None))
        .order_by(TaskInstance.end_date.desc())
        .limit(_JOBS)
    )
    took = {str(id_): seconds for id_, seconds in session.execute(jobs).tuples() if seconds is not None}
    with db_snapshot.read_snapshot(Settings()) as connection:
        made = recomputation.states(connection, took)
    sizes = {job: sum(map(len, days.values())) for job, days in made.items()}
    known = [took[job] / size for job, size in sizes.items() if size]
    return median(known) if known else None


def _at_once(session: Session) -> int:
    """How many jobs the pool runs at once."""
    pool = (
        select(Pool.slots)
        .join(TaskInstance, TaskInstance.pool == Pool.pool)
        .where(TaskInstance.dag_id == Dag.RECOMPUTE, TaskInstance.task_id == _TASK)
        .limit(1)
    )
    return max(1, session.scalar(pool) or 1)


def _comparison(session: Session) -> float:
    """The median of the time for a comparison that new partials started; 0 without any."""
    runs = (
        select(DagRun.start_date, DagRun.end_date)
        .where(DagRun.dag_id == Dag.RECONCILE, DagRun.run_type == DagRunType.ASSET_TRIGGERED)
        .where(DagRun.state == DagRunState.SUCCESS)
        .order_by(DagRun.id.desc())
        .limit(_COMPARISONS)
    )
    took = [(end - start) / timedelta(seconds=1) for start, end in session.execute(runs).tuples() if start and end]
    return median(took) if took else 0.0
