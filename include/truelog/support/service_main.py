"""Logging and a clean exit on SIGTERM, shared by the `main` functions of the services."""

import logging
import signal
from collections.abc import Callable
from threading import Event


def configure_logging() -> None:
    """Log to standard error, at level INFO and above."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")


def run_until_terminated(work: Callable[[Event], None]) -> None:
    """Run `work` until SIGTERM or SIGINT sets its event. `work` must return soon afterwards.

    The signals raise no exception, because an exception inside a C library's callback would become a SystemError.
    """
    configure_logging()
    stopped = Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    work(stopped)
