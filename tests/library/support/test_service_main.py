"""The services' shared `main`: a signal sets an event and does not interrupt the work."""

import os
import signal
from threading import Event

import pytest

from tests.deadline import deadline
from truelog.support.service_main import run_until_terminated


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_the_work_without_an_exception(number: signal.Signals) -> None:
    before = {each: signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)}
    steps: list[bool] = []

    def work(stopped: Event) -> None:
        steps.append(stopped.is_set())
        os.kill(os.getpid(), number)
        steps.append(stopped.wait(deadline(10)))

    try:
        run_until_terminated(work)
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
    assert steps == [False, True]
