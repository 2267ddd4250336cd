"""Tests of the DAGs that keep applications in their desired state: the trigger, and the task that acts on its event."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from confluent_kafka import Producer

from tests.builders.applications import a_launch, a_lease, forget_application, last_batch
from tests.dags.looks import payload
from tests.deadline import deadline
from tests.scenes.declared import copy_events
from truelog.apps import launcher
from truelog.apps.liveness import diagnose
from truelog.control import application, lease
from truelog.control.application import Diagnosis
from truelog.log import topics
from truelog.schema.loading.events import load_events
from truelog.spark.submit import SPARK
from truelog.storage import audit_trail
from truelog.storage.database import Connection, connect
from truelog.support import timestamps
from truelog.support.errors import CrashLoop
from truelog.support.settings import PROJECT, Settings

if TYPE_CHECKING:
    from airflow.dag_processing.dagbag import DagBag

NAME, DOER = "watched", "user"
LOOKS = 3  # after so many looks, a trigger that has not fired has found nothing


@pytest.fixture
def database(postgresql: Settings) -> Iterator[Connection]:
    with connect(postgresql, autocommit=True) as connection:
        application.declare(connection, [NAME])
        yield connection
        forget_application(connection, NAME)


@pytest.fixture
def held(postgresql: Settings, database: Connection) -> Iterator[lease.Lease]:
    """The application is running in this process and has just finished a batch."""
    taken = lease.take_lease(postgresql, NAME)
    lease.record_batch(database, taken.holder)
    yield taken
    taken.release()


@dataclass(frozen=True)
class Run:
    """The DAG run in a task's context."""

    run_id: str = "scheduled"
    clear_number: int = 0


def seen(dags: "DagBag", *, looks: int | None = None, meanwhile: Callable[[], object] | None = None) -> str:
    """The trigger's finding; `nothing` if the trigger has looked `looks` times and has not fired."""
    from stream_trigger import StreamTrigger

    fired = payload(StreamTrigger(NAME), looks=looks, meanwhile=meanwhile)
    return str(fired["found"]) if fired else "nothing"


def keep(dags: "DagBag", clear_number: int = 0) -> tuple[str, str]:
    """Run the task. Return the trigger that the task defers to and the method that resumes the task."""
    from airflow.sdk.exceptions import TaskDeferred
    from stream_operator import StreamOperator

    with pytest.raises(TaskDeferred) as deferred:
        StreamOperator(task_id="keep", application=NAME).execute({"dag_run": Run(clear_number=clear_number)})
    return type(deferred.value.trigger).__name__, deferred.value.method_name


def test_every_dag_loads_and_has_documentation(dags: "DagBag") -> None:
    assert dags.import_errors == {}
    for dag in dags.dags.values():
        assert dag.doc_md, dag.dag_id
        assert "Red" in dag.doc_md, dag.dag_id
        assert dag.tags, dag.dag_id
        assert dag.owner, dag.dag_id


def test_every_dag_loads_while_an_event_file_is_broken(
    dags: "DagBag", settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = copy_events(tmp_path)
    (broken / "click.py").write_text("TOPIC = Topic(")
    monkeypatch.setenv("TRUELOG_EVENTS_FOLDER", str(broken))
    with pytest.raises(SyntaxError):
        compile((broken / "click.py").read_text(), "click.py", "exec")
    loaded = type(dags)(dag_folder=PROJECT / "dags")
    assert loaded.import_errors == {}
    assert loaded.dags.keys() == dags.dags.keys()


def test_each_application_has_a_dag(dags: "DagBag", settings: Settings) -> None:
    kept = {name: dags.dags[f"stream_{name}"] for name in application.application_names(settings)}
    assert {type(dag.timetable).__name__ for dag in kept.values()} == {"ContinuousTimetable"}
    assert {dag.max_active_runs for dag in kept.values()} == {1}
    tasks: list[Any] = [dag.get_task("keep") for dag in kept.values()]
    assert [task.application for task in tasks] == ["archive", "stream"]
    assert set(dags.dags["streams"].task_ids) == {"ensure", "has_changed", "release"}


def test_the_trigger_survives_serialization(dags: "DagBag") -> None:
    from airflow._shared.module_loading import import_string
    from stream_trigger import StreamTrigger

    path, given = StreamTrigger(NAME).serialize()
    again = import_string(path)(**given)
    assert (type(again), again.serialize()) == (StreamTrigger, (path, given))


def test_a_healthy_application_does_not_fire_the_trigger(dags: "DagBag", held: lease.Lease) -> None:
    assert seen(dags, looks=LOOKS) == "nothing"


def test_the_trigger_fires_at_its_first_look_after_the_application_has_died(dags: "DagBag", held: lease.Lease) -> None:
    assert seen(dags, looks=2, meanwhile=held.release) == "down"


def test_the_trigger_fires_on_a_stop_request(dags: "DagBag", held: lease.Lease, database: Connection) -> None:
    application.set_desired(database, NAME, application.STOPPED, DOER)
    assert seen(dags) == "stop"


def test_a_command_that_holds_the_lease_does_not_fire_the_trigger(
    dags: "DagBag", database: Connection, postgresql: Settings
) -> None:
    """Airflow would otherwise stop its process in place of the application's."""
    application.set_desired(database, NAME, application.STOPPED, DOER)
    command = lease.take_lease(postgresql, NAME, code=lease.COMMAND)
    assert seen(dags, looks=LOOKS) == "nothing"
    command.release()
    application.set_desired(database, NAME, application.RUNNING, DOER)
    assert seen(dags) == "down"


def test_an_application_without_input_is_not_hung(
    dags: "DagBag", held: lease.Lease, database: Connection, postgresql: Settings
) -> None:
    """Kafka is not answering."""
    away = postgresql.model_copy(update={"kafka_bootstrap": "127.0.0.1:1"})
    _silent(database)
    assert diagnose(away, application.load_status(database, NAME), datetime.now(UTC)) is Diagnosis.NO_INPUT
    assert launcher.ensure_desired_state(away, NAME).startswith("no_input")
    assert launches(database) == []


def test_an_application_that_ignores_a_tick_is_hung(
    dags: "DagBag",
    held: lease.Lease,
    database: Connection,
    kafka: Settings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topics.sync_topics(kafka, load_events())
    _silent(database, timedelta(seconds=1))
    monkeypatch.setenv("TRUELOG_TICK_SECONDS", "0.1")
    monkeypatch.setenv("TRUELOG_SILENCE_SECONDS", "0.1")
    monkeypatch.setattr("stream_trigger._NO_INPUT_POLL_SECONDS", 0.05)
    assert seen(dags, looks=LOOKS) == "nothing"
    producer = Producer(kafka.kafka())
    tick = {"event_id": "a tick", "occurred_at": timestamps.to_text(datetime.now(UTC)), "ends": "{}"}
    producer.produce("ticks", json.dumps(tick))
    assert producer.flush(deadline(30)) == 0
    assert seen(dags) == "hung"

    _launched(database, Settings().deaths_allowed, "hung")
    with pytest.raises(CrashLoop, match="hung 5 times"):
        launcher.ensure_desired_state(Settings(), NAME)


def _silent(database: Connection, since: timedelta = timedelta(hours=1)) -> None:
    last_batch(database, NAME, ago=since)


def test_a_failed_start_does_not_hold_up_other_applications(
    database: Connection, postgresql: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The start fails in the Spark provider, which has no connection here."""
    from airflow.sdk.exceptions import AirflowNotFoundException

    application.set_desired(database, NAME, application.STOPPED, DOER)
    with pytest.raises(AirflowNotFoundException, match=SPARK):
        launcher.ensure_all_desired_states(postgresql, [NAME, "other"], ["other", NAME])
    rows = database.execute("SELECT 1 FROM truelog.application WHERE application = 'other'").fetchall()
    assert rows == [(1,)]
    forget_application(database, "other")


def test_the_trigger_fires_on_changed_code(dags: "DagBag", held: lease.Lease, database: Connection) -> None:
    lease.record_code(database, held.holder, "old")
    application.set_code(database, NAME, "new", "files")
    assert seen(dags) == "changed"


def test_a_restart_request_fires_the_trigger_until_a_launch_grants_it(
    dags: "DagBag", held: lease.Lease, database: Connection
) -> None:
    application.request_restart(database, NAME, DOER)
    assert [(each.kind, each.doer) for each in audit_trail.latest_operations(database, 1)] == [("restart", DOER)]
    assert seen(dags) == "restart_pending"
    a_launch(database, NAME, "by hand", wish=application.load_status(database, NAME).wish)
    assert application.load_status(database, NAME).wish is None
    assert seen(dags, looks=LOOKS) == "nothing"


def test_changed_code_is_recorded_as_a_release(database: Connection) -> None:
    for code in ("old", "old", "new"):
        application.set_code(database, NAME, code, "files")
    releases = [each for each in audit_trail.latest_operations(database, 10, "release") if each.subject == NAME]
    assert [each.about for each in releases] == ["old became new"]


def test_the_trigger_survives_the_end_of_its_database_session(
    dags: "DagBag", held: lease.Lease, database: Connection
) -> None:
    """The trigger still fires on a later change."""
    own = held.connection.info.backend_pid

    def cut() -> None:
        database.execute(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity "
            "WHERE datname = current_database() AND usename = current_user AND pid NOT IN (pg_backend_pid(), %s)",
            (own,),
        )
        application.set_desired(database, NAME, application.STOPPED, DOER)

    assert seen(dags, looks=3, meanwhile=cut) == "stop"  # the second look fails


def test_a_stopped_application_is_watched_and_not_started(dags: "DagBag", database: Connection) -> None:
    application.set_desired(database, NAME, application.STOPPED, DOER)
    assert keep(dags) == ("StreamTrigger", "resumed")
    assert launches(database) == []


def test_a_crash_loop_pauses_the_application(dags: "DagBag", database: Connection, postgresql: Settings) -> None:
    """The task that keeps the application fails, and `resting` waits in the same run until the next try."""
    from airflow.sdk.exceptions import AirflowFailException, TaskDeferred
    from stream_operator import RestOperator, StreamOperator

    _died(database, postgresql.deaths_allowed)
    task = StreamOperator(task_id="keep", application=NAME)
    rest: Any = RestOperator(task_id="resting", application=NAME)
    resting = r"is RESTING: it exited or hung 5 times in 24 h\. Next try at"
    with pytest.raises(CrashLoop, match=resting):
        task.resumed({}, {"found": "down"})
    with pytest.raises(CrashLoop, match=resting):
        task.execute({"dag_run": Run()})
    with pytest.raises(TaskDeferred) as deferred:
        rest.execute({"dag_run": Run()})
    trigger: Any = deferred.value.trigger
    assert type(trigger).__name__ == "RestTrigger"
    [(first,)] = database.execute("SELECT min(launched_at) FROM truelog.launch WHERE application = %s", (NAME,))
    due = first + timedelta(seconds=postgresql.deaths_seconds)
    assert datetime.fromisoformat(trigger.due) == due
    with pytest.raises(AirflowFailException, match="The next run tries again"):
        getattr(rest, deferred.value.method_name)({}, {})
    assert len(launches(database)) == postgresql.deaths_allowed


def test_a_requested_start_ends_the_rest(dags: "DagBag", database: Connection, postgresql: Settings) -> None:
    """The start fails in the Spark provider, which has no connection here."""
    from airflow.sdk.exceptions import AirflowNotFoundException
    from stream_trigger import RestTrigger

    def start() -> None:
        launcher.request_start(postgresql, NAME, DOER)

    start()
    assert application.load_status(database, NAME).wish is None, "the application does not rest, and no start is due"
    _died(database, postgresql.deaths_allowed)
    due = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    assert payload(RestTrigger(NAME, due), looks=LOOKS) is None
    assert payload(RestTrigger(NAME, due), looks=LOOKS, meanwhile=start) == {"application": NAME}
    with pytest.raises(AirflowNotFoundException, match=SPARK):
        launcher.ensure_desired_state(postgresql, NAME)
    assert launcher.BY_REQUEST in launches(database)


def test_a_rest_ends_when_it_is_over(dags: "DagBag", database: Connection) -> None:
    from stream_trigger import RestTrigger

    assert payload(RestTrigger(NAME, datetime.now(UTC).isoformat()), looks=0) == {"application": NAME}


def test_a_cleared_rest_restarts_the_application(dags: "DagBag", database: Connection, postgresql: Settings) -> None:
    """The start fails in the Spark provider, which has no connection here."""
    from airflow.sdk.exceptions import AirflowNotFoundException
    from stream_operator import RestOperator

    _died(database, postgresql.deaths_allowed)
    with pytest.raises(AirflowNotFoundException, match=SPARK):
        RestOperator(task_id="resting", application=NAME).execute({"dag_run": Run(clear_number=1)})


def test_the_run_of_a_healthy_application_has_nothing_to_rest_from(dags: "DagBag") -> None:
    rest = dags.dags["stream_archive"].get_task("resting")
    assert (rest.trigger_rule, rest.upstream_task_ids) == ("all_failed", {"keep"})


def test_old_crashes_do_not_count(database: Connection, postgresql: Settings) -> None:
    """The application is started again; the start fails in the Spark provider, which has no connection here."""
    from airflow.sdk.exceptions import AirflowNotFoundException

    _died(database, postgresql.deaths_allowed, ago=timedelta(seconds=301))
    with pytest.raises(AirflowNotFoundException, match=SPARK):
        launcher.ensure_desired_state(postgresql, NAME)


def test_a_lock_without_a_process_is_removed(postgresql: Settings, database: Connection) -> None:
    """The lock belongs to an application on an unreachable machine."""
    a_lease(database, NAME)
    with psycopg.connect(**postgresql.database(), autocommit=True) as far:
        far.execute("SELECT pg_advisory_lock(hashtextextended(%s, 0))", (NAME,))
        assert application.load_status(database, NAME).alive
        launcher.stop(postgresql, NAME)
        assert not application.load_status(database, NAME).alive


def launches(database: Connection) -> list[object]:
    rows = database.execute("SELECT reason FROM truelog.launch WHERE application = %s", (NAME,)).fetchall()
    return [reason for (reason,) in rows]


def _died(database: Connection, times: int, ago: timedelta = timedelta(seconds=1)) -> None:
    _launched(database, times, "down", ago)


def _launched(database: Connection, times: int, reason: str, ago: timedelta = timedelta(seconds=1)) -> None:
    for _ in range(times):
        a_launch(database, NAME, reason, ago=ago)
