"""Run the archive: every record of every declared topic, for ever. It ends on SIGTERM, after the batch under way."""

import logging
import signal
import threading

from truelog.archiver import archive
from truelog.settings import Settings


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    logging.getLogger("py4j").setLevel(logging.WARNING)
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    archive(Settings(), stop)


if __name__ == "__main__":
    main()
