"""Tests of the `archive_upkeep` DAG."""

import os
import time
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from truelog.archive import audit_evidence
from truelog.archive.audit import AuditReport
from truelog.support.settings import Settings

if TYPE_CHECKING:
    from airflow.dag_processing.dagbag import DagBag


def audit(dags: "DagBag", monkeypatch: pytest.MonkeyPatch, *faults: str, deep: bool = False) -> list[bool]:
    """Run the audit task with a report that lists these faults. Returns whether each audit was a deep one."""
    task: Any = dags.dags["archive_upkeep"].get_task("audit")
    audits: list[bool] = []

    def run_audit(_: object, *, deep: bool) -> AuditReport:
        audits.append(deep)
        return AuditReport((), 0, faults)

    monkeypatch.setattr(audit_evidence, "run_audit", run_audit)
    task.python_callable({"deep": deep})
    return audits


def test_a_fault_fails_the_task_without_a_retry(dags: "DagBag", monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.sdk.exceptions import AirflowFailException

    with pytest.raises(AirflowFailException, match=r"has faults: click 0: a\.parquet is missing from the bucket; more"):
        audit(dags, monkeypatch, "click 0: a.parquet is missing from the bucket", "more")


@pytest.mark.parametrize("deep", [False, True])
def test_an_archive_without_faults_succeeds(dags: "DagBag", monkeypatch: pytest.MonkeyPatch, deep: bool) -> None:
    """A run with the parameter `deep` compares the bytes."""
    assert audit(dags, monkeypatch, deep=deep) == [deep]


def test_the_audit_runs_even_if_compaction_failed(dags: "DagBag") -> None:
    dag = dags.dags["archive_upkeep"]
    assert dag.get_task("audit").upstream_task_ids == {"compact"}
    assert dag.get_task("audit").trigger_rule == "all_done"
    assert dag.get_task("compact").pool == "recompute"


def test_a_failed_compaction_fails_the_run_although_the_audit_succeeds(dags: "DagBag") -> None:
    """The last task of a run decides the run's state."""
    [last] = dags.dags["archive_upkeep"].leaves
    assert last.upstream_task_ids == {"compact", "audit", "old_runs"}
    assert last.trigger_rule == "all_success"


WAITS, ENDS, PAUSED, OTHER = DAGS = ("waits", "ends", "paused", "of_another")


def a_dag(dag: str) -> None:
    from airflow.models.dag import DagModel
    from airflow.models.dagbundle import DagBundleModel
    from airflow.utils.session import create_session

    made: Any = DagModel
    with create_session() as session:
        session.merge(DagBundleModel(name="dags-folder"))
        session.flush()
        session.add(
            made(dag_id=dag, owners="another" if dag.startswith("of_") else "truelog", bundle_name="dags-folder")
        )


def a_run(dag: str, name: str, state: str, days: int, kind: str = "scheduled") -> Path:
    """A run that began so many days ago, with a task. It took a day, unless it is running. Returns its logs."""
    from airflow.configuration import conf
    from airflow.models.dagrun import DagRun
    from airflow.models.taskinstance import TaskInstance
    from airflow.utils.session import create_session
    from airflow.utils.state import DagRunState
    from sqlalchemy import insert

    began = datetime.now(UTC) - timedelta(days=days)
    with create_session() as session:
        run = DagRun(dag, name, logical_date=began, run_type=kind, state=DagRunState(state), start_date=began)
        run.end_date = None if state == "running" else began + timedelta(days=1)
        session.add(run)
        session.flush()
        columns = {"id": uuid.uuid4(), "task_id": "t", "dag_id": dag, "run_id": name, "start_date": began}
        session.execute(insert(TaskInstance.__table__), columns | {"pool": "p", "pool_slots": 1})
    folder = Path(conf.get_mandatory_value("logging", "base_log_folder")) / f"dag_id={dag}" / f"run_id={name}"
    (folder / "task_id=t").mkdir(parents=True)
    return folder


def left() -> list[set[tuple[str, str]]]:
    """The runs and the tasks of these DAGs that Airflow's database contains."""
    from airflow.models.dagrun import DagRun
    from airflow.models.taskinstance import TaskInstance
    from airflow.utils.session import create_session
    from sqlalchemy import select

    with create_session() as session:
        kinds = [select(each.dag_id, each.run_id).where(each.dag_id.in_(DAGS)) for each in (DagRun, TaskInstance)]
        return [{(dag, run) for dag, run in session.execute(query)} for query in kinds]


def test_old_runs_and_their_logs_are_deleted(
    dags: "DagBag", airflow_database: None, postgresql: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Airflow does for a task, the variable hides the database."""
    for dag in DAGS:
        a_dag(dag)
    gone = [
        a_run(ENDS, "asked", "success", 92, "manual"),
        a_run(ENDS, "first", "failed", 92),
        a_run(WAITS, "earlier", "success", 120),
    ]
    stay = [
        a_run(ENDS, "second", "success", 90),
        a_run(WAITS, "active", "running", 100),
        a_run(PAUSED, "last", "success", 110),
        a_run(PAUSED, "filled", "success", 100, "backfill"),
        a_run(OTHER, "first", "success", 110),
        a_run(OTHER, "second", "success", 100),
    ]
    monkeypatch.setenv("AIRFLOW__DATABASE__SQL_ALCHEMY_CONN", "airflow-db-not-allowed:///")
    task: Any = dags.dags["archive_upkeep"].get_task("old_runs")
    task.python_callable()
    runs = {
        (ENDS, "second"),
        (WAITS, "active"),
        (PAUSED, "last"),
        (PAUSED, "filled"),
        (OTHER, "first"),
        (OTHER, "second"),
    }
    assert left() == [runs, runs]
    assert [each.exists() for each in (*gone, *stay)] == [False] * 3 + [True] * 6


def test_old_runs_deletes_old_logs_of_dag_files_unless_another_owner_has_dags(
    dags: "DagBag", airflow_database: None, postgresql: Settings
) -> None:
    from airflow.configuration import conf
    from airflow.models.dag import DagModel
    from airflow.utils.session import create_session
    from sqlalchemy import delete

    days = Path(conf.get_mandatory_value("logging", "base_log_folder")) / "dag_processor"
    for day, age in (("old", 91), ("changed", 91), ("new", 0)):
        (days / day).mkdir(parents=True)
        (days / day / "file.log").touch()
        at = time.time() - age * 86_400
        os.utime(days / day, (at, at))
        os.utime(days / day / "file.log", (at, at) if day == "old" else None)
    (days / "latest").symlink_to(days / "old")
    task: Any = dags.dags["archive_upkeep"].get_task("old_runs")
    a_dag("of_a_third")
    task.python_callable()
    assert (days / "old").exists()
    with create_session() as session:
        session.execute(delete(DagModel).where(DagModel.owners == "another"))
    task.python_callable()
    assert sorted(each.name for each in days.iterdir()) == ["changed", "latest", "new"]
