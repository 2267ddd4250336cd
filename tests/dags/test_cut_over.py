"""Tests of the `cut_over` DAG: it works only for versions that lack something, which `versions/test_build.py` tests."""

import json
import runpy
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from tests.library.versions.two_versions import deploy_two
from truelog.storage.database import connect
from truelog.support.settings import PROJECT, Settings
from truelog.versions import build
from truelog.versions.build import Built

if TYPE_CHECKING:
    from airflow.dag_processing.dagbag import DagBag


def test_a_run_without_a_due_version_skips_the_job(
    dags: "DagBag", airflow_database: None, postgresql: Settings
) -> None:
    run = dags.dags["cut_over"].test(logical_date=datetime(2026, 1, 1, tzinfo=UTC))
    states = {ti.task_id: str(ti.state) for ti in run.get_task_instances()}
    assert (str(run.state), states) == ("success", {"due": "success", "build": "skipped"})


def test_a_proved_version_is_due_until_readers_see_it_unless_people_move_them(
    dags: "DagBag", postgresql: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    due: Any = dags.dags["cut_over"].get_task("due")
    with connect(postgresql, autocommit=True) as connection:
        versions = deploy_two(postgresql, connection)
        versions.run_both()
        assert due.python_callable() == [versions.name]
        versions.make_ready()
        assert due.python_callable() == [versions.name]
        monkeypatch.setenv("TRUELOG_CUT_OVER", "manual")
        assert not due.python_callable()
        versions.forget()


def test_the_job_fails_with_the_reasons_of_the_versions_that_failed(
    postgresql: Settings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = [Built("one", 2, reason="it waits"), Built("two", 3, reason="OSError: no", failed=True)]
    monkeypatch.setattr(build, "build_versions", lambda *_, **__: found)
    monkeypatch.setattr(sys, "argv", ["cut_over.py", "one", "two"])
    script = str(PROJECT / "spark_apps" / "cut_over.py")
    with pytest.raises(SystemExit) as failed:
        runpy.run_path(script, run_name="__main__")
    assert failed.value.code == "two: OSError: no"
    assert json.loads(capsys.readouterr().out) == {"versions": [each.as_dict() for each in found]}
    del found[1]
    with pytest.raises(SystemExit) as waits:
        runpy.run_path(script, run_name="__main__")
    assert waits.value.code is None


def test_the_job_receives_the_views_and_waits_behind_the_streams(dags: "DagBag") -> None:
    job: Any = dags.dags["cut_over"].get_task("build")
    assert (job.application_args.operator.task_id, job.pool, job.upstream_task_ids) == ("due", "recompute", {"due"})
    assert job.application.endswith("spark_apps/cut_over.py")
    assert (dags.dags["cut_over"].max_active_runs, dags.dags["cut_over"].catchup) == (1, False)
