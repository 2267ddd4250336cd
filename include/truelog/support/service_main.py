"""What the `main` functions of the services share: logging, and a clean end on SIGTERM."""

import contextlib
import logging
import signal
from collections.abc import Callable


def configure_logging() -> None:
    """Log to standard error, from the level INFO."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")


def run_until_terminated(work: Callable[[], None]) -> None:
    """Run `work` until SIGTERM or SIGINT interrupts it."""
    configure_logging()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with contextlib.suppress(KeyboardInterrupt):
        work()
