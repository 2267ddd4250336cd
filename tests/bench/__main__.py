"""`make bench`: measure, print a table, write `build/bench.json`. Everything that it starts it stops."""

import argparse
import logging
from pathlib import Path

from rich.console import Console

from tests.bench import report
from tests.bench.corpus import preload
from tests.bench.ground import platform
from tests.bench.suite import JOBS, Suite
from truelog.support.settings import PROJECT

LEAST = 400_000  # events
WIDTH = 130  # where the output is no terminal, which tells its own


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m tests.bench", description=(__doc__ or "").strip())
    made.add_argument("--events", type=_enough, default=1_000_000, help="in the log before anything is measured")
    made.add_argument("--seconds", type=float, default=30, help="for which freshness and the collector are measured")
    made.add_argument("--jobs", nargs="+", choices=list(JOBS), default=list(JOBS), help="all by default")
    made.add_argument("--output", type=Path, default=PROJECT / "build" / "bench.json")
    return made


def _enough(text: str) -> int:
    if int(text) < LEAST:
        raise argparse.ArgumentTypeError(
            f"at least {LEAST:,}: a stream's speed is that of the second half, which must be some batches"
        )
    return int(text)


def main() -> None:
    given = parser().parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    logging.getLogger("py4j").setLevel(logging.WARNING)
    with platform() as settings:
        logging.getLogger("truelog.bench").info("sending %s events", f"{given.events:,}")
        suite = Suite(settings, preload(settings, given.events), given.seconds)
        suite.run(given.jobs)
    report.write(given.output, suite.rows, suite.corpus.events)
    report.show(suite.rows, Console(width=max(Console().width, WIDTH)))


if __name__ == "__main__":
    main()
