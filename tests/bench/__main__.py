"""Run the benchmarks, print a table and write `build/bench.json`, then stop every process that was started."""

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
WIDTH = 130  # if the output is not a terminal


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m tests.bench", description=(__doc__ or "").strip())
    made.add_argument(
        "--events", type=_enough, default=1_000_000, help="number of events in the log before the measurements"
    )
    made.add_argument(
        "--seconds", type=float, default=30, help="duration of the measurements of freshness and of the collector"
    )
    made.add_argument("--jobs", nargs="+", choices=list(JOBS), default=list(JOBS), help="default: all")
    made.add_argument("--output", type=Path, default=PROJECT / "build" / "bench.json")
    return made


def _enough(text: str) -> int:
    if int(text) < LEAST:
        raise argparse.ArgumentTypeError(
            f"at least {LEAST:,}: the speed of a stream is measured on the second half, which needs several batches"
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
