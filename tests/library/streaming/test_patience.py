"""An application waits for services, but not for its own Java process, which cannot come back."""

import threading

import psycopg
import pytest

from truelog.control.lease import Lease
from truelog.streaming import patience
from truelog.streaming.patience import OUTAGES, Patience, outlast_outage
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


@pytest.mark.parametrize("error", [ConnectionRefusedError(111, "refused"), ConnectionResetError(104, "reset")])
def test_an_application_whose_java_process_has_ended_ends(error: Exception) -> None:
    assert isinstance(error, OUTAGES)
    lease = HeldLease()
    with pytest.raises(type(error)):
        Patience(lease, threading.Event()).wait(error)
    assert lease.waited == 0
