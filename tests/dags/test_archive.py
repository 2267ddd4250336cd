"""The DAG `archive_upkeep`: what its audit makes of what it finds."""

from typing import TYPE_CHECKING, Any

import pytest

from truelog.archive import audit_evidence
from truelog.archive.audit import Report

if TYPE_CHECKING:
    from airflow.dag_processing.dagbag import DagBag


def audit(dags: "DagBag", monkeypatch: pytest.MonkeyPatch, *faults: str) -> None:
    """The task, told that these faults were found."""
    task: Any = dags.dags["archive_upkeep"].get_task("audit")
    monkeypatch.setattr(audit_evidence, "run_audit", lambda settings, *, deep: Report((), 0, faults))
    task.python_callable({"deep": False})


def test_a_fault_is_red_at_once(dags: "DagBag", monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.sdk.exceptions import AirflowFailException

    with pytest.raises(AirflowFailException, match=r"has faults: click 0: a\.parquet is missing from the bucket; more"):
        audit(dags, monkeypatch, "click 0: a.parquet is missing from the bucket", "more")


def test_a_sound_archive_is_green(dags: "DagBag", monkeypatch: pytest.MonkeyPatch) -> None:
    audit(dags, monkeypatch)


def test_the_audit_comes_whatever_became_of_the_compaction(dags: "DagBag") -> None:
    dag = dags.dags["archive_upkeep"]
    assert dag.get_task("audit").upstream_task_ids == {"compact"}
    assert dag.get_task("audit").trigger_rule == "all_done"
    assert dag.get_task("compact").pool == "recompute"
