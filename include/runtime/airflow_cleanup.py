"""`python -m runtime.airflow_cleanup SECONDS`: deletes Truelog's runs that ended earlier, and their logs.

Airflow does not let the code of a task use its database, so a task runs this as a process of its own.
`airflow db clean` would also delete the tasks of a run that has watched an application for longer.
"""

import shutil
import sys
from collections.abc import Collection
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from airflow.configuration import conf
from airflow.models.asset import AssetEvent
from airflow.models.backfill import Backfill
from airflow.models.dag import DagModel
from airflow.models.dagrun import DagRun
from airflow.models.log import Log
from airflow.utils.session import create_session
from airflow.utils.state import State
from airflow.utils.types import DagRunType
from sqlalchemy import delete, exists, func, select

_OWNER = "truelog"  # the same Airflow may run DAGs of another owner
_PORTION = 1_000  # runs that are deleted in one transaction, with their tasks


def clean_up(before: datetime) -> None:
    """Delete the runs that ended before this time, what Airflow has recorded about them, and the logs."""
    logs = Path(conf.get_mandatory_value("logging", "base_log_folder"))
    with create_session() as session:
        dags = session.scalars(select(DagModel.dag_id).where(DagModel.owners == _OWNER)).all()
        is_shared = session.scalar(select(exists().where(DagModel.owners != _OWNER)))
    while _delete_runs(before, dags, logs):
        pass
    with create_session() as session:
        session.execute(delete(AssetEvent).where(AssetEvent.source_dag_id.in_(dags), AssetEvent.timestamp < before))
        session.execute(delete(Log).where(Log.dag_id.in_(dags), Log.dttm < before))
        has_run = exists().where(DagRun.backfill_id == Backfill.id)
        session.execute(delete(Backfill).where(Backfill.dag_id.in_(dags), Backfill.completed_at < before, ~has_run))
    for day in () if is_shared else logs.glob("dag_processor/*"):
        if not day.is_symlink() and all(each.lstat().st_mtime < before.timestamp() for each in (day, *day.rglob("*"))):
            shutil.rmtree(day)


def _delete_runs(before: datetime, dags: Collection[str], logs: Path) -> int:
    """Delete a portion of the runs, and return their number.

    The newest scheduled run stays, and the newest one of a backfill, because the scheduler goes on from there.
    """
    newest = select(func.max(DagRun.id)).where(DagRun.run_type != DagRunType.MANUAL)
    over = select(DagRun.id, DagRun.dag_id, DagRun.run_id).where(
        DagRun.dag_id.in_(dags),
        DagRun.state.in_(State.finished_dr_states),
        DagRun.end_date < before,
        DagRun.id.not_in(newest.group_by(DagRun.dag_id, DagRun.run_type)),
    )
    with create_session() as session:
        found = session.execute(over.limit(_PORTION)).all()
        for _, dag, run in found:  # first, because nothing would lead to them afterwards
            with suppress(FileNotFoundError):
                shutil.rmtree(logs / f"dag_id={dag}" / f"run_id={run}")
        session.execute(delete(DagRun).where(DagRun.id.in_([number for number, *_ in found])))
    return len(found)


if __name__ == "__main__":
    clean_up(datetime.now(UTC) - timedelta(seconds=float(sys.argv[1])))
