"""An application waits for services, but not for its own Java process, which cannot come back."""

import threading

import pytest

from truelog.control.lease import Lease
from truelog.streaming.patience import OUTAGES, Patience
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


@pytest.mark.parametrize("error", [ConnectionRefusedError(111, "refused"), ConnectionResetError(104, "reset")])
def test_an_application_whose_java_process_has_ended_ends(error: Exception) -> None:
    assert isinstance(error, OUTAGES)
    lease = HeldLease()
    with pytest.raises(type(error)):
        Patience(lease, threading.Event()).wait(error)
    assert lease.waited == 0
