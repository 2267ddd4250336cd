"""Tests of the `past` DAG: its task waits until an application asks about the past of a view."""

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from tests.dags.looks import payload
from truelog.exports.query import RowQuery
from truelog.history import past_question
from truelog.history.past_question import PastPage, PastQuestion
from truelog.storage.database import connect
from truelog.support.settings import Settings

if TYPE_CHECKING:
    from airflow.dag_processing.dagbag import DagBag

QUESTION = PastQuestion("page_views", 1, datetime(2026, 1, 1, tzinfo=UTC), RowQuery("page_views"))


def test_the_job_runs_when_a_question_waits(
    dags: "DagBag", postgresql: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow._shared.module_loading import import_string
    from airflow.sdk.exceptions import AirflowFailException, TaskDeferred
    from spark_job import SparkJob

    task: Any = dags.dags["past"].get_task("answer")
    rest: Any = dags.dags["past"].get_task("resting")
    assert (rest.trigger_rule, rest.upstream_task_ids) == ("all_failed", {"answer"})
    with pytest.raises(TaskDeferred) as resting:
        rest.execute({})
    assert resting.value.trigger.moment > datetime.now(UTC) + timedelta(seconds=20)
    with pytest.raises(AirflowFailException, match="The next run tries again"):
        rest.rested({}, {})
    assert (task.pool, task.retries, type(task.dag.timetable).__name__) == ("default_pool", 0, "ContinuousTimetable")
    runs = []
    monkeypatch.setattr(SparkJob, "execute", lambda *_: runs.append(1))
    with pytest.raises(TaskDeferred) as deferred:
        task.execute({})
    path, given = deferred.value.trigger.serialize()
    trigger = import_string(path)(**given)
    with connect(postgresql, autocommit=True) as connection:
        asked = lambda: past_question.ask(connection, postgresql, QUESTION, PastPage(1), "shop")  # noqa: E731
        assert payload(trigger, looks=2, meanwhile=asked) == {}
        task.resumed({}, {})
        task.execute({})
        assert len(runs) == 2
        [waits] = past_question.waiting(connection)
        past_question.refuse(connection, waits, past_question.IMPOSSIBLE, "it is only a test")
    with pytest.raises(TaskDeferred):
        task.execute({})
