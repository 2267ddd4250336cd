"""An application waits for services, but not for its own Java process, which cannot come back."""

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from unittest import mock

import psycopg
import pytest

from truelog.control.lease import Lease
from truelog.streaming import archive_app, patience, stream
from truelog.streaming.patience import OUTAGES, Patience, outlast_outage
from truelog.streaming.stream import Stream
from truelog.support.errors import ServiceDown


class HeldLease(Lease):
    """A lease that is never interrupted, without a database."""

    def __init__(self) -> None:
        self.interruptions = 0
        self.waited = 0

    def outlast(self, interruptions: int, stop: threading.Event) -> bool:
        self.waited += 1
        return False

    @property
    def holder(self) -> object:  # type: ignore[override]
        return type("Holder", (), {"application": "stream"})


@pytest.mark.parametrize("error", [ServiceDown("kafka"), OSError("AWS Error NETWORK_CONNECTION")])
def test_a_service_that_is_down_is_waited_for(error: Exception) -> None:
    lease = HeldLease()
    Patience(lease, threading.Event()).wait(error)
    assert lease.waited == 1


def test_a_start_waits_for_the_services_that_it_needs() -> None:
    answers = iter([psycopg.OperationalError("down"), ServiceDown("starting"), "lease"])

    def work() -> object:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    assert outlast_outage(work, threading.Event()) == "lease"


def test_a_start_does_not_wait_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    def work() -> None:
        raise psycopg.OperationalError("down")

    stopped = threading.Event()
    stopped.set()
    with pytest.raises(psycopg.OperationalError):
        outlast_outage(work, stopped)
    monkeypatch.setattr(patience, "RETAKE_SECONDS", -1.0)
    with pytest.raises(psycopg.OperationalError):
        outlast_outage(work, threading.Event())


def plan_stream(watched: Patience, stop: threading.Event) -> None:
    app: Any = SimpleNamespace(settings=None, application="a", connection=mock.Mock(closed=False), topics=(), stop=stop)
    app.patience, app.deployment, app._changed, app._plan = watched, mock.Mock(), mock.Mock(), mock.Mock()
    Stream._follow_as_declared(app)


def plan_archive(watched: Patience, stop: threading.Event) -> None:
    app: Any = SimpleNamespace(tables={}, patience=watched)
    archive_app._archive_until_changed(mock.Mock(), app, mock.Mock(), stop)


@pytest.mark.parametrize("plan", [plan_stream, plan_archive])
def test_an_application_without_a_topic_waits_in_each_outage(
    plan: Callable[[Patience, threading.Event], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has no batch, so its plan between the outages is its progress."""
    now, stop = [0.0], threading.Event()
    monkeypatch.setattr(patience, "time", SimpleNamespace(monotonic=lambda: now[0]))
    for name in ("ChangeWatch", "StreamTopics"):
        monkeypatch.setattr(stream, name, mock.Mock())
    waiting = Patience(HeldLease(), stop)
    for hours in (1, 2):
        now[0] = hours * 3600.0
        waiting.wait(ServiceDown("kafka"))
        plan(waiting, stop)
    now[0] += 3600
    waiting.wait(ServiceDown("kafka"))
    now[0] += 3600
    with pytest.raises(ServiceDown):
        waiting.wait(ServiceDown("kafka"))


@pytest.mark.parametrize("error", [ConnectionRefusedError(111, "refused"), ConnectionResetError(104, "reset")])
def test_an_application_whose_java_process_has_ended_ends(error: Exception) -> None:
    assert isinstance(error, OUTAGES)
    lease = HeldLease()
    with pytest.raises(type(error)):
        Patience(lease, threading.Event()).wait(error)
    assert lease.waited == 0
