"""Tests of the alert DAGs: which DAGs exist, what the task does when a receiver is down, and the heartbeat."""

import traceback
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import SecretStr

from tests.dags.dag_files import load_dags
from tests.dags.looks import payload
from tests.library.alert_tables import age, application_of, emptied
from tests.library.listener import FAILS, TAKES, Listener, listening
from tests.library.mail_server import mail_server
from truelog.alerts import store as alert_store
from truelog.alerts.delivery import deliver
from truelog.alerts.kind import KINDS
from truelog.alerts.receiver import configured
from truelog.alerts.rules import Finding, NotificationPolicy, Observation, Source
from truelog.alerts.scheduler import SOURCES, record
from truelog.reports import heartbeat
from truelog.storage.database import Connection
from truelog.support.errors import NotSetUp, ReceiverDown, ServiceDown
from truelog.support.settings import PROJECT, Settings

if TYPE_CHECKING:
    from airflow.dag_processing.dagbag import DagBag

SOURCE = Source("made up", ("application_down",), 1, lambda _: Observation())


@pytest.fixture
def listener() -> Iterator[Listener]:
    with listening() as it:
        yield it


@pytest.fixture
def database(postgresql: Settings) -> Iterator[Connection]:
    with emptied(postgresql) as connection:
        yield connection


@pytest.fixture
def receiving(database: Connection, listener: Listener, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Configure an Alertmanager and a watcher in the environment, where tasks and DAG files read the settings."""
    monkeypatch.setenv("TRUELOG_ALERTMANAGER_URL", listener.url)
    monkeypatch.setenv("TRUELOG_HEARTBEAT_URL", f"{listener.url}/beat/a-secret")
    return Settings()


def open_alert(database: Connection, *receivers: str) -> None:
    alert_store.record_observation(
        database,
        SOURCE,
        Observation((Finding("application_down", "one", "it died"),)),
        NotificationPolicy(receivers, timedelta(hours=4), application_of),
    )


def test_no_receiver_is_configured_by_default(dags: "DagBag") -> None:
    assert not [name for name in dags.dags if name.startswith("alerts") or name == "heartbeat"]


def test_each_configured_receiver_has_a_dag(dags: "DagBag", receiving: Settings) -> None:
    bag = load_dags(PROJECT / "dags" / "alerts.py")
    assert bag.import_errors == {}
    assert set(bag.dags) == {"alerts_alertmanager", "heartbeat"}
    for dag in bag.dags.values():
        assert "Red" in (dag.doc_md or "")
        assert (dag.owner, dag.max_active_runs) == ("truelog", 1)
    tell: Any = bag.dags["alerts_alertmanager"].get_task("tell")
    assert (tell.receiver, tell.retries, tell.retry_exponential_backoff) == ("alertmanager", 8, 2)


def test_the_pages_that_alerts_link_to_exist(dags: "DagBag") -> None:
    from pages_plugin import PLUGIN

    from pages.files import PAGES

    existing = {f"{PLUGIN}/{page}" for page in PAGES} | {f"/dags/{dag}" for dag in dags.dags}
    pages = {kind.page.format(subject="stream").partition("?")[0] for kind in KINDS.values()}
    assert {f"/{page}" for page in pages} - existing == set()
    assert {kind.dag.format(subject="stream") for kind in KINDS.values() if kind.dag} - dags.dags.keys() == set()


def test_the_task_is_deferred_until_a_notification_waits(
    dags: "DagBag", receiving: Settings, database: Connection, listener: Listener
) -> None:
    from airflow._shared.module_loading import import_string
    from airflow.sdk.exceptions import TaskDeferred
    from alert_operator import AlertOperator

    task = AlertOperator(task_id="tell", receiver="alertmanager")
    with pytest.raises(TaskDeferred) as deferred:
        task.execute({})
    path, given = deferred.value.trigger.serialize()
    trigger = import_string(path)(**given)
    event = payload(trigger, looks=2, meanwhile=lambda: open_alert(database, "alertmanager"))
    assert event == {"receiver": "alertmanager"}
    listener.mood = FAILS
    with pytest.raises(ReceiverDown):
        task.resumed({}, event)
    listener.mood = TAKES
    assert task.execute({}) == ["application_down/one open"]
    assert len(listener.taken) == 1


def test_a_receiver_that_is_down_for_ten_minutes_loses_nothing(
    dags: "DagBag", receiving: Settings, database: Connection, listener: Listener
) -> None:
    """Tries follow the delays that Airflow computes, on the database clock. The incident ends during the outage."""
    from airflow.sdk.exceptions import TaskDeferred

    dag = load_dags(PROJECT / "dags" / "alerts.py").dags["alerts_alertmanager"]
    task: Any = dag.get_task("tell")
    assert (type(dag.timetable).__name__, dag.max_consecutive_failed_dag_runs) == ("ContinuousTimetable", 0)

    open_alert(database, "alertmanager")
    listener.mood, away, tries = FAILS, timedelta(), 0
    while away < timedelta(minutes=10):
        for pause in pauses(task):
            with pytest.raises(ReceiverDown):
                task.execute({})
            age(database, pause)
            away, tries = away + pause, tries + 1
        alert_store.record_observation(
            database, SOURCE, Observation(), NotificationPolicy(["alertmanager"], timedelta(hours=4), application_of)
        )
    assert tries > 2 * task.retries
    assert (len(listener.asked), listener.taken, alert_store.open_alerts(database)) == (tries, [], [])

    listener.mood = TAKES
    assert task.execute({}) == ["application_down/one open", "application_down/one resolved"]
    with pytest.raises(TaskDeferred):
        task.execute({})
    assert len(listener.taken) == 2


def pauses(task: Any) -> list[timedelta]:
    """The delay after each try of a run, as the scheduler computes it. The next run follows the last try at once."""
    from airflow.models.taskinstance import TaskInstance

    now = datetime.now(UTC)
    tried = {"task": task, "dag_id": task.dag_id, "task_id": task.task_id, "logical_date": None, "end_date": now}
    next_retry: Any = TaskInstance.next_retry_datetime
    runs = [SimpleNamespace(**tried, retry_delay_override=None, try_number=n + 1) for n in range(task.retries)]
    return [*(next_retry(each) - now for each in runs), timedelta()]


def test_the_heartbeat_is_held_back_when_a_problem_could_go_unnoticed(
    receiving: Settings, postgresql: Settings, database: Connection, listener: Listener
) -> None:
    with pytest.raises(ServiceDown, match="Alerts are not checked: applications"):
        heartbeat.send_heartbeat(receiving)
    for source in SOURCES:
        record(receiving, database, source, Observation())
    heartbeat.send_heartbeat(receiving)
    assert listener.paths == ["/beat/a-secret"]
    open_alert(database, *configured(receiving))
    heartbeat.send_heartbeat(receiving)
    database.execute("UPDATE truelog.notification SET made_at = made_at - interval '11 minutes'")
    with pytest.raises(ServiceDown, match="alertmanager: not attempted"):
        heartbeat.send_heartbeat(receiving)
    deliver(receiving, "alertmanager")
    listener.mood = FAILS
    with pytest.raises(ReceiverDown) as down:
        heartbeat.send_heartbeat(receiving)
    assert "a-secret" not in str(down.value)


def test_each_address_gets_its_mails_through_the_connection_of_airflow(
    airflow_database: None, database: Connection, postgresql: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An address that refuses a mail delays no other, and no error quotes it."""
    ann = postgresql.model_copy(update={"alert_email": "ann@example.org", "pagerduty_key": SecretStr("")})
    both = ann.model_copy(update={"alert_email": "ann@example.org, bob@example.org,"})
    assert configured(both) == ["email", "email_2"]
    open_alert(database, *configured(both))
    extra = "disable_ssl=true&disable_tls=true&from_email=truelog%40example.org&retry_limit=0&timeout=5"
    monkeypatch.setenv("AIRFLOW_CONN_SMTP_DEFAULT", f"smtp://127.0.0.1:1/?{extra}")
    with pytest.raises(ReceiverDown, match=r"email did not accept .*: .* ConnectionRefusedError"):
        deliver(both, "email")
    with pytest.raises(NotSetUp, match="do not configure the alert receiver email_2"):
        deliver(ann, "email_2")
    with mail_server({"ann@example.org": 450}) as server:
        monkeypatch.setenv("AIRFLOW_CONN_SMTP_DEFAULT", f"smtp://127.0.0.1:{server.port}/?{extra}")
        with pytest.raises(ReceiverDown, match="the mail server refused the address: 450") as refused:
            deliver(both, "email")
        assert deliver(both, "email_2") == ["application_down/one open"]
        server.refused.clear()
        assert deliver(both, "email") == ["application_down/one open"]
    assert server.addresses == [["bob@example.org"], ["ann@example.org"]]
    assert "Subject: [critical] the one application is down or hung" in server.mails[0]
    assert "example.org" not in "".join(traceback.format_exception(refused.value))
