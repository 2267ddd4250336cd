"""Run a stream application: `stream.py [--application NAME]`. On SIGTERM, finish the current batch and exit."""

import argparse
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
        from truelog.streaming.stream import Stream
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--application", default="stream")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    logging.getLogger("py4j").setLevel(logging.WARNING)
    stop = threading.Event()
    show_stacks_on_signal()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    try:
        Stream(Settings(), arguments.application, stop).run()
    except Fenced as error:
        logging.getLogger("truelog").error("%s", error)
        return LEASE_LOST
    return 0


if __name__ == "__main__":
    sys.exit(main())
