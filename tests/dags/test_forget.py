"""Tests of the `forget` DAG: it continues erasures, and never learns whom they are about."""

import uuid
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from runtime import namespace
from tests.builders.erasures import an_erasure, forget_erasures
from tests.library.whole_environments import drop_databases, reading, set_up
from truelog.control import event_registry
from truelog.erasure import ledger
from truelog.erasure.erasure import Erasure
from truelog.erasure.ledger import Step
from truelog.erasure.secret import secret_of
from truelog.erasure.subject import Subject, secret_check
from truelog.forgetting import erasure_log
from truelog.log import topics
from truelog.log.positions import Positions
from truelog.storage.database import connect
from truelog.support.settings import Settings

if TYPE_CHECKING:
    from airflow.dag_processing.dagbag import DagBag


def test_a_run_without_an_interrupted_erasure_skips_the_job(
    dags: "DagBag", airflow_database: None, platform: Settings
) -> None:
    run = dags.dags["forget"].test(logical_date=datetime(2026, 1, 1, tzinfo=UTC))
    states = {ti.task_id: str(ti.state) for ti in run.get_task_instances()}
    assert (str(run.state), states) == ("success", {"due": "success", "forget": "skipped"})


def test_an_interrupted_erasure_is_due_unless_a_command_performs_it(dags: "DagBag", platform: Settings) -> None:
    due: Any = dags.dags["forget"].get_task("due")
    ends, fields = Positions({"like": {0: 7}}, {"like": "a"}), {"like": ("person_id",)}
    wanted = Erasure(uuid.uuid4(), frozenset({Subject.of(b"s", "person_id", "ann")}), fields, ends)
    with connect(platform, autocommit=True) as connection:
        an_erasure(connection, wanted, Step.VIEWS)
        assert due.python_callable() == [str(wanted.id)]
        with ledger.exclusive(connection):
            assert due.python_callable() == []
        forget_erasures(connection)


def test_an_erasure_of_the_environment_that_is_read_is_due(
    dags: "DagBag", platform: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    red = set_up(platform, "red")
    blue = reading(platform, "blue", red)
    for setting in ("namespace", "reads_namespace", "reads_bucket", "database_name", "s3_bucket"):
        monkeypatch.setenv(f"TRUELOG_{setting.upper()}", getattr(blue, setting))
    due: Any = dags.dags["forget"].get_task("due")
    assert due.python_callable() == []
    secret, ends = secret_of(red), topics.end_offsets(red, ["like"])
    subjects = frozenset({Subject.of(secret, "person_id", "ann")})
    wanted = Erasure(uuid.uuid4(), subjects, {"like": ("person_id",)}, ends, secret_check(secret))
    erasure_log.publish(red, event_registry.confirmed_types(red), wanted)
    assert due.python_callable() == [str(wanted.id)]
    for each in (blue, red):
        namespace.destroy(each)
        drop_databases(each)


def test_the_job_waits_behind_the_streams_and_is_told_nothing(dags: "DagBag") -> None:
    job: Any = dags.dags["forget"].get_task("forget")
    assert (job.pool, job.application_args, job.upstream_task_ids) == ("recompute", None, {"due"})
    assert job.application.endswith("spark_apps/forget.py")
