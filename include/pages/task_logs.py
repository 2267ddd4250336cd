"""Links to the runs and the task logs of the DAGs that keep the applications running."""

from collections.abc import Iterable
from urllib.parse import quote

from airflow.models.taskinstance import TaskInstance
from airflow.utils.session import create_session
from airflow.utils.state import TaskInstanceState
from sqlalchemy import select
from sqlalchemy.orm import Session

TASK = "keep"


def task_logs(applications: Iterable[str]) -> dict[str, str]:
    """The address of each application's newest failed task log, or of its newest log, relative to Airflow's root."""
    with create_session() as session:
        found = {name: _newest(session, f"stream_{name}") for name in applications}
    return {name: path for name, path in found.items() if path}


def _newest(session: Session, dag: str) -> str | None:
    """Ids of task instances begin with the time, so that the highest id is the newest."""
    tries = select(TaskInstance.run_id).where(TaskInstance.dag_id == dag, TaskInstance.task_id == TASK)
    newest = tries.order_by(TaskInstance.id.desc()).limit(1)
    failed = newest.where(TaskInstance.state == TaskInstanceState.FAILED)
    run = session.scalar(failed) or session.scalar(newest)
    return f"dags/{dag}/runs/{quote(run, safe='')}/tasks/{TASK}" if run else None
