"""Continuously archive every record of every declared topic. On SIGTERM, finish the current batch and exit."""

import logging
import signal
import sys
import threading

from truelog.control.lease import LEASE_LOST
from truelog.support.errors import Fenced
from truelog.support.process import quick_imports, show_stacks_on_signal
from truelog.support.settings import Settings


def main() -> int:
    with quick_imports():
        from truelog.streaming.archive_app import run_archive
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    logging.getLogger("py4j").setLevel(logging.WARNING)
    stop = threading.Event()
    show_stacks_on_signal()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    try:
        run_archive(Settings(), stop)
    except Fenced as error:
        logging.getLogger("truelog").error("%s", error)
        return LEASE_LOST
    return 0


if __name__ == "__main__":
    sys.exit(main())
