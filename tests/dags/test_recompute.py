"""Tests of the `recompute` DAG: a run's days, the wait for the archive, and the job arguments."""

import asyncio
import math
from datetime import UTC, datetime, timedelta
from itertools import product
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from tests.builders.log import a_log_day
from tests.deadline import deadline
from tests.library.registered import registered
from truelog.batch.run_interval import RunInterval, archived_days, topics_behind
from truelog.storage import audit_trail
from truelog.storage.database import connect
from truelog.support.errors import ArchiveBehind, BadInput
from truelog.support.settings import Settings

if TYPE_CHECKING:
    from airflow.dag_processing.dagbag import DagBag

DAY, HOUR, TEN = 86_400, 3_600, 10
NOW = datetime(2026, 11, 21, 15, 42, 7, tzinfo=UTC)


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


YESTERDAY, TODAY = at("2026-11-20"), at("2026-11-21")
BY_INTERVAL = {"day": None, "open": False}


@pytest.mark.parametrize(
    ("params", "begins", "day", "begin", "end"),
    [
        (BY_INTERVAL, YESTERDAY, DAY, "2026-11-20", "2026-11-21"),
        (BY_INTERVAL, TODAY, DAY, "2026-11-21", "2026-11-22"),  # the run waits until the day is over
        (BY_INTERVAL, TODAY, TEN, "2026-11-21", "2026-11-21 15:42:10"),  # only the part that has begun
        (BY_INTERVAL, YESTERDAY, TEN, "2026-11-20", "2026-11-21"),
        ({"day": "2026-11-01", "open": False}, YESTERDAY, DAY, "2026-11-01", "2026-11-02"),
        ({"day": "2026-11-01", "open": False}, None, HOUR, "2026-11-01", "2026-11-02"),
        ({"day": "2026-11-01 10:05", "open": False}, None, HOUR, "2026-11-01 10:00", "2026-11-01 11:00"),
        ({"day": "2026-11-01T10:05:00Z", "open": False}, None, TEN, "2026-11-01 10:05", "2026-11-01 10:05:10"),
        ({"day": None, "open": True}, None, DAY, "2026-11-21", "2026-11-22"),
        ({"day": None, "open": True}, YESTERDAY, TEN, "2026-11-21 15:42", "2026-11-21 15:42:10"),
        ({"day": "2026-11-21", "open": True}, None, TEN, "2026-11-21", "2026-11-21 15:42:10"),
    ],
)
def test_the_days_of_a_run_begin_in_its_interval(
    params: dict[str, Any], begins: datetime | None, day: int, begin: str, end: str
) -> None:
    span = RunInterval.of_run(params, begins, NOW, day)
    assert (span.begin, span.end, span.unfinished) == (at(begin), at(end), params["open"])
    assert RunInterval.from_dict(span.as_dict()) == span


@pytest.mark.parametrize("params", [BY_INTERVAL, {"day": "2026-11-22", "open": False}])
def test_a_run_without_a_day_is_refused(params: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match="day"):
        RunInterval.of_run(params, None, NOW, DAY)


@pytest.mark.parametrize(
    ("end", "day", "closes"),
    [
        ("2026-11-21", DAY, "2026-11-21"),
        ("2026-11-21 15:42:10", TEN, "2026-11-21 15:42:10"),
        ("2026-11-21 01:00", DAY, "2026-11-22"),  # the last day begins within the span and ends after it
    ],
)
def test_a_span_closes_with_its_last_day(end: str, day: int, closes: str) -> None:
    assert RunInterval(at("2026-11-20"), at(end)).closes(day) == at(closes)


def test_one_application_recomputes_all_days_of_all_views(dags: "DagBag") -> None:
    from recompute import summary
    from recompute_job import arguments

    planned = {"views": ["a", "b"], "days": ["2026-11-01T00:00:00+00:00"], "unfinished": False}
    of_try = ["--run", "of a day", "--attempt", "try"]
    day = ["--day", "2026-11-01T00:00:00+00:00"]
    assert arguments(planned, "of a day", "try") == [*of_try, *day, "a", "b"]
    assert summary(planned) == "a, b: 2026-11-01"
    days = ["2026-11-01T10:00:00+00:00", "2026-11-01T10:10:00+00:00"]
    several = {"views": ["a"], "days": days, "unfinished": True}
    assert arguments(several, "of a day", "try")[-3:] == [days[1], "--open", "a"]
    assert summary(several) == "a: 2026-11-01 10:00:00 and 1 more"


def test_jobs_wait_in_the_pool_with_the_lowest_priority(dags: "DagBag") -> None:
    dag = dags.dags["recompute"]
    job = dag.get_task("recompute")
    assert (job.pool, job.priority_weight, job.retries) == ("recompute", 0, 2)
    assert dag.get_task("wait").priority_weight == 0
    assert type(dag.timetable).__name__ == "CronDataIntervalTimetable"


def test_today_can_be_backfilled_if_log_days_are_short(dags: "DagBag") -> None:
    """In a backfill, today ends one second ago; the scheduler waits until today is over."""
    from airflow.serialization.serialized_objects import DagSerialization
    from airflow.timetables.base import DataInterval, TimeRestriction
    from day_timetable import DaysSoFar
    from pendulum import instance

    dag: Any = DagSerialization.from_dict(DagSerialization.to_dict(dags.dags["recompute"]))
    dag.timetable = timetable = DaysSoFar("0 0 * * *", timezone="UTC")
    midnight = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    *_, before, today = dag.iter_dagrun_infos_between(midnight - timedelta(days=2), midnight)
    assert before.data_interval == DataInterval(instance(midnight - timedelta(days=1)), instance(midnight))
    assert today.data_interval.start == midnight
    assert midnight <= today.data_interval.end < datetime.now(UTC)
    by_clock = timetable.next_dagrun_info(
        last_automated_data_interval=before.data_interval, restriction=TimeRestriction(None, None, catchup=False)
    )
    assert by_clock is not None
    assert by_clock.run_after == midnight + timedelta(days=1)


@pytest.mark.parametrize("after", [timedelta(seconds=1), timedelta(minutes=4), timedelta(minutes=20)])
@pytest.mark.parametrize(
    ("name", "due"), [("reconcile", "09:00"), ("archive_upkeep", "06:20"), ("batch_views", "02:30")]
)
def test_scheduled_dags_do_not_run_at_once_on_a_new_platform(
    dags: "DagBag", monkeypatch: pytest.MonkeyPatch, name: str, due: str, after: timedelta
) -> None:
    """An early run would compete with streams that have just started and block the pool during a demo."""
    from airflow.serialization.definitions.dag import SerializedDAG
    from airflow.serialization.serialized_objects import DagSerialization

    dag: SerializedDAG = DagSerialization.from_dict(DagSerialization.to_dict(dags.dags[name]))
    now = datetime.fromisoformat(f"2026-05-04T{due}+00:00") + after
    monkeypatch.setattr("airflow.timetables.trigger.utcnow", lambda: now)
    first = dag.next_dagrun_info(last_automated_run_info=None)
    assert first is not None
    assert first.run_after > now


def payload_of_wait(*lags: Any) -> str:
    """The reason in the trigger's event, given the results of its looks. After the last one, its deadline passes."""
    from log_day_trigger import LogDayTrigger

    answers = iter(lags)

    class Fast(LogDayTrigger):  # type: ignore[misc]
        poll_seconds = 0.01

        @staticmethod
        def lagging(moment: datetime) -> list[str]:
            assert moment == at("2026-11-21")
            answer = next(answers)
            if answer is lags[-1]:
                trigger.deadline = 0.0
            if isinstance(answer, Exception):
                raise answer
            return list(answer)

    async def only() -> Any:
        [event] = [event async for event in trigger.run()]
        return event

    trigger = Fast(at("2026-11-21").isoformat(), math.inf)
    event = asyncio.run(asyncio.wait_for(only(), deadline(30)))
    assert next(answers, None) is None, "the trigger ended before its deadline"
    return str(event.payload["open"])


def test_the_trigger_ends_when_the_days_are_closed(dags: "DagBag") -> None:
    assert payload_of_wait(["click", "search"], ["click"], []) == ""


def test_the_trigger_outlasts_a_database_outage(dags: "DagBag") -> None:
    assert payload_of_wait(OSError("away"), ["click"], OSError("away"), []) == ""


def test_the_trigger_times_out_and_names_the_lagging_topic(dags: "DagBag") -> None:
    assert payload_of_wait(["click"], ["click"]) == "the archive of click has not reached 2026-11-21T00:00:00+00:00"


def test_the_trigger_survives_serialization(dags: "DagBag") -> None:
    from airflow._shared.module_loading import import_string
    from log_day_trigger import LogDayTrigger

    path, given = LogDayTrigger("2026-11-21T00:00:00+00:00", 12.5).serialize()
    assert import_string(path)(**given).serialize() == (path, given)


def test_a_wait_that_timed_out_fails_with_its_reason(dags: "DagBag") -> None:
    from log_day_operator import LogDayOperator

    with pytest.raises(ArchiveBehind, match=r"of click .*Check that the `archive` application"):
        LogDayOperator(task_id="wait").closed({}, {"open": "the archive of click has not reached X"}, {})
    assert LogDayOperator(task_id="wait").closed({}, {"open": ""}, {"begin": "x"}) == {"begin": "x"}


def test_days_come_from_the_archive(postgresql: Settings) -> None:
    """An empty archive has no lag and no day to recompute."""
    begin = at("2001-01-01")
    with connect(postgresql) as connection:
        for i, partition in product(range(3), range(2)):
            day = begin.timestamp() + i * TEN
            a_log_day(connection, "page_view", day, topic_id="days-of-2001", partition=partition)
    span = RunInterval(begin, begin + timedelta(seconds=2 * TEN))
    assert archived_days(postgresql, span) == [begin, begin + timedelta(seconds=TEN)]
    assert archived_days(postgresql, RunInterval(at("2000-01-01"), begin)) == []
    with registered(postgresql, "days-of-2001"):
        assert topics_behind(postgresql, begin) == []


def test_a_run_before_the_archive_began_succeeds(dags: "DagBag", airflow_database: None, postgresql: Settings) -> None:
    """Every task runs; there are no jobs."""
    with registered(postgresql, "days-of-2021"):
        run = dags.dags["recompute"].test(logical_date=at("2021-01-01"))
    states = {ti.task_id: str(ti.state) for ti in run.get_task_instances()}
    assert str(run.state) == "success"
    assert states == {"wait": "success", "plan": "success", "recompute": "skipped", "announce": "skipped"}


PLANNED = {"views": ["a"], "days": ["2026-11-01T00:00:00+00:00"], "unfinished": False}


def test_the_user_who_started_a_backfill_is_recorded(dags: "DagBag", postgresql: Settings) -> None:
    """A scheduled run has no user and records no operation."""
    from recompute import announce
    from view_assets import RECOMPUTED

    for run_type in ("scheduled", "backfill"):
        run = SimpleNamespace(run_type=run_type, run_id="asked", triggering_user_name="oncall")
        outlet = {RECOMPUTED: SimpleNamespace(add=lambda view, extra: None)}
        announce.function(PLANNED, {"repair": True}, run, SimpleNamespace(id="try"), outlet)
    with connect(postgresql) as connection:
        operations = audit_trail.latest_operations(connection, 10, "backfill")
    assert [(each.doer, each.about) for each in operations] == [("oncall", "asked: a: 2026-11-01")]


def test_an_event_names_the_try_that_announced_it(dags: "DagBag") -> None:
    """A later backfill repeats the run under the same id."""
    from recompute import announce
    from view_assets import RECOMPUTED

    extras: list[dict[str, Any]] = []
    outlet = {RECOMPUTED: SimpleNamespace(add=lambda view, extra: extras.append(extra))}
    run = SimpleNamespace(run_type="scheduled")
    for attempt in (UUID(int=1), UUID(int=2)):
        announce.function(PLANNED, {"repair": True}, run, SimpleNamespace(id=attempt), outlet)
    assert extras == [{"repair": True, "attempt": str(UUID(int=number))} for number in (1, 2)]
