"""Logging and a clean exit on SIGTERM, shared by the `main` functions of the services."""

import logging
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event

from truelog.support.wait import OUTAGES


def configure_logging() -> None:
    """Log to standard error, at level INFO and above."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")


def run_until_terminated(work: Callable[[Event], None]) -> None:
    """Run `work` until SIGTERM or SIGINT sets its event. `work` must return soon afterwards."""
    configure_logging()
    with stoppable() as stopped:
        work(stopped)


@contextmanager
def stoppable() -> Iterator[Event]:
    """An event that SIGTERM and SIGINT set during the block. After that, an outage ends the block without an error.

    The signals raise no exception, because an exception inside a C library's callback would become a SystemError.
    """
    stopped, before = Event(), {}
    for number in (signal.SIGTERM, signal.SIGINT):
        before[number] = signal.signal(number, lambda *_: stopped.set())
    try:
        yield stopped
    except OUTAGES:
        if not stopped.is_set():
            raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
