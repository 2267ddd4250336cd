"""The DAGs that tell of alerts: which there are, what the task does when a receiver is down, and the heartbeat."""

import asyncio
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import SecretStr

from tests.library.alert_tables import age, emptied
from tests.library.listener import FAILS, TAKES, Listener, listening
from truelog.alerts import alert_store, heartbeat
from truelog.alerts.alert import Finding, Observation, Source
from truelog.alerts.alert_delivery import deliver
from truelog.alerts.alert_kind import KINDS
from truelog.alerts.alert_receiver import configured
from truelog.alerts.alert_watch import SOURCES, record
from truelog.storage.database import Connection
from truelog.support.errors import ReceiverDown, ServiceDown
from truelog.support.settings import PROJECT, Settings

if TYPE_CHECKING:
    from airflow.dag_processing.dagbag import DagBag

DOWN = Source("made up", ("application_down",), 1, lambda _: Observation())


@pytest.fixture
def listener() -> Iterator[Listener]:
    with listening() as it:
        yield it


@pytest.fixture
def database(postgresql: Settings) -> Iterator[Connection]:
    with emptied(postgresql) as connection:
        yield connection


@pytest.fixture
def told(database: Connection, listener: Listener, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """An Alertmanager and a watcher are set, as tasks and DAG files read it."""
    monkeypatch.setenv("TRUELOG_ALERTMANAGER_URL", listener.url)
    monkeypatch.setenv("TRUELOG_HEARTBEAT_URL", f"{listener.url}/beat/a-secret")
    return Settings()


def died(database: Connection, *receivers: str) -> None:
    alert_store.record_observation(
        database, DOWN, Observation((Finding("application_down", "one", "it died"),)), receivers, timedelta(hours=4)
    )


def test_nobody_is_told_by_default(dags: "DagBag") -> None:
    assert not [name for name in dags.dags if name.startswith("alerts") or name == "heartbeat"]


def test_each_receiver_that_is_set_has_a_dag(dags: "DagBag", told: Settings) -> None:
    from airflow.dag_processing.dagbag import DagBag

    bag = DagBag(dag_folder=PROJECT / "dags" / "alerts.py")
    assert bag.import_errors == {}
    assert set(bag.dags) == {"alerts_alertmanager", "heartbeat"}
    for dag in bag.dags.values():
        assert "Red" in (dag.doc_md or "")
        assert (dag.owner, dag.max_active_runs) == ("truelog", 1)
    tell: Any = bag.dags["alerts_alertmanager"].get_task("tell")
    assert (tell.receiver, tell.retries, tell.retry_exponential_backoff) == ("alertmanager", 8, 2)


def test_the_pages_that_alerts_link_to_are_there(dags: "DagBag") -> None:
    from pages_plugin import PagesPlugin

    there = {f"plugin/{view['url_route']}" for view in PagesPlugin.external_views}
    there |= {f"dags/{dag}" for dag in dags.dags}
    assert {kind.page.format(subject="stream") for kind in KINDS.values()} - there == set()


def test_the_task_waits_until_there_is_something_to_tell(
    dags: "DagBag", told: Settings, database: Connection, listener: Listener
) -> None:
    from airflow._shared.module_loading import import_string
    from airflow.sdk.exceptions import TaskDeferred
    from alert_operator import AlertOperator

    task = AlertOperator(task_id="tell", receiver="alertmanager")
    with pytest.raises(TaskDeferred) as deferred:
        task.execute({})
    path, given = deferred.value.trigger.serialize()
    trigger = import_string(path)(**given)

    async def woken() -> Any:
        return await asyncio.wait_for(anext(trigger.run()), 10)

    threading.Timer(0.3, died, (database, "alertmanager")).start()
    event = asyncio.run(woken())
    listener.mood = FAILS
    with pytest.raises(ReceiverDown):
        task.resumed({}, event.payload)
    listener.mood = TAKES
    assert task.execute({}) == ["application_down/one open"]
    assert len(listener.taken) == 1


def test_a_receiver_that_is_down_for_ten_minutes_loses_nothing(
    dags: "DagBag", told: Settings, database: Connection, listener: Listener
) -> None:
    """Each try comes when Airflow says, by the database's clock; the incident ends while nobody listens."""
    from airflow.dag_processing.dagbag import DagBag
    from airflow.sdk.exceptions import TaskDeferred

    dag = DagBag(dag_folder=PROJECT / "dags" / "alerts.py").dags["alerts_alertmanager"]
    task: Any = dag.get_task("tell")
    assert (type(dag.timetable).__name__, dag.max_consecutive_failed_dag_runs) == ("ContinuousTimetable", 0)

    died(database, "alertmanager")
    listener.mood, away, tries = FAILS, timedelta(), 0
    while away < timedelta(minutes=10):
        for pause in pauses(task):
            with pytest.raises(ReceiverDown):
                task.execute({})
            age(database, pause)
            away, tries = away + pause, tries + 1
        alert_store.record_observation(database, DOWN, Observation(), ["alertmanager"], timedelta(hours=4))
    assert tries > 2 * task.retries
    assert (len(listener.asked), listener.taken, alert_store.open_alerts(database)) == (tries, [], [])

    listener.mood = TAKES
    assert task.execute({}) == ["application_down/one open", "application_down/one resolved"]
    with pytest.raises(TaskDeferred):
        task.execute({})
    assert len(listener.taken) == 2


def pauses(task: Any) -> list[timedelta]:
    """After each try of a run, as the scheduler reckons it; after the last one the next run begins."""
    from airflow.models.taskinstance import TaskInstance

    now = datetime.now(UTC)
    tried = {"task": task, "dag_id": task.dag_id, "task_id": task.task_id, "logical_date": None, "end_date": now}
    reckon: Any = TaskInstance.next_retry_datetime
    runs = [SimpleNamespace(**tried, retry_delay_override=None, try_number=n + 1) for n in range(task.retries)]
    return [*(reckon(each) - now for each in runs), timedelta()]


def test_the_heart_beats_while_somebody_would_be_paged(
    told: Settings, postgresql: Settings, database: Connection, listener: Listener
) -> None:
    with pytest.raises(ServiceDown, match="nobody looks at: applications"):
        heartbeat.send_heartbeat(told)
    for source in SOURCES:
        record(told, database, source, Observation())
    heartbeat.send_heartbeat(told)
    assert listener.paths == ["/beat/a-secret"]
    died(database, *configured(told))
    heartbeat.send_heartbeat(told)
    database.execute("UPDATE truelog.notification SET made_at = made_at - interval '11 minutes'")
    with pytest.raises(ServiceDown, match="alertmanager: it was not tried"):
        heartbeat.send_heartbeat(told)
    deliver(told, "alertmanager")
    listener.mood = FAILS
    with pytest.raises(ReceiverDown) as down:
        heartbeat.send_heartbeat(told)
    assert "a-secret" not in str(down.value)


class Mail(socketserver.StreamRequestHandler):
    """As much of SMTP as takes one letter."""

    letters: list[str] = []  # noqa: RUF012  the handler is made anew for each client

    def handle(self) -> None:
        self._say("220 here")
        while line := self.rfile.readline().decode().strip().upper():
            if line == "DATA":
                self._say("354 go on")
                letter = b"".join(iter(self.rfile.readline, b".\r\n"))
                self.letters.append(letter.decode())
            self._say("221 bye" if line == "QUIT" else "250 fine")

    def _say(self, words: str) -> None:
        self.wfile.write(f"{words}\r\n".encode())


@contextmanager
def post_office() -> Iterator[int]:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Mail) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


def test_a_letter_goes_by_airflows_connection(
    airflow_database: None, database: Connection, postgresql: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    mailed = postgresql.model_copy(
        update={"alert_email": "ann@example.org, bob@example.org", "pagerduty_key": SecretStr("")}
    )
    assert configured(mailed) == ["email"]
    died(database, "email")
    extra = "disable_ssl=true&disable_tls=true&from_email=truelog%40example.org&retry_limit=0&timeout=5"
    monkeypatch.setenv("AIRFLOW_CONN_SMTP_DEFAULT", f"smtp://127.0.0.1:1/?{extra}")
    with pytest.raises(
        ReceiverDown, match="email was not told application_down/one open: email: ConnectionRefusedError"
    ):
        deliver(mailed, "email")
    with post_office() as port:
        monkeypatch.setenv("AIRFLOW_CONN_SMTP_DEFAULT", f"smtp://127.0.0.1:{port}/?{extra}")
        assert deliver(mailed, "email") == ["application_down/one open"]
    [letter] = Mail.letters
    assert "Subject: [critical] the application one does not run, or has hung" in letter
    assert "bob@example.org" in letter
