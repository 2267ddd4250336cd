"""Tests of the `archive_upkeep` DAG."""

from typing import TYPE_CHECKING, Any

import pytest

from truelog.archive import audit_evidence
from truelog.archive.audit import AuditReport

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
    assert last.upstream_task_ids == {"compact", "audit"}
    assert last.trigger_rule == "all_success"
