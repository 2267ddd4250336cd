"""Run the benchmarks, print a table and write `build/bench.json`, then stop every process that was started."""

import argparse
import logging
import subprocess
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from bench import report
from bench.corpus import Corpus, preload
from bench.ground import platform
from bench.peers import PYTHON
from bench.row import Row
from bench.streaming import Window
from bench.suite import APART, JOBS, QUICK, Suite
from truelog.support.settings import PROJECT, Settings

LEAST = 400_000  # events
WIDTH = 150  # if the output is not a terminal
PLOT = Path(__file__).with_name("plot.py")

FULL = {"events": 4_000_000, "warm_events": 6_000_000, "warm_seconds": 60.0, "seconds": 30.0, "jobs": list(JOBS)}
SMALL = {"events": 600_000, "warm_events": 600_000, "warm_seconds": 15.0, "seconds": 10.0, "jobs": list(QUICK)}

log = logging.getLogger("truelog.bench")


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m bench", description=(__doc__ or "").strip())
    made.add_argument("--quick", action="store_true", help="fewer jobs and events")
    made.add_argument("--events", type=_enough, help="events that each stream measures at least (4,000,000)")
    made.add_argument("--warm-events", type=int, help="further events in the log, for the warm-up (6,000,000)")
    made.add_argument("--warm-seconds", type=float, help="longest warm-up of a stream (60)")
    made.add_argument("--seconds", type=float, help="duration of freshness, the collector and an idle stream (30)")
    made.add_argument("--jobs", nargs="+", choices=list(JOBS), help="default: all")
    made.add_argument("--output", type=Path, default=PROJECT / "build" / "bench.json")
    return made


def read(arguments: list[str] | None = None) -> argparse.Namespace:
    """The arguments. An option that is not given has the value of the full or of the quick run."""
    given = parser().parse_args(arguments)
    for name, value in (SMALL if given.quick else FULL).items():
        if getattr(given, name) is None:
            setattr(given, name, value)
    return given


def _enough(text: str) -> int:
    if int(text) < LEAST:
        raise argparse.ArgumentTypeError(f"at least {LEAST:,}: the measurement of a stream needs several batches")
    return int(text)


def main() -> None:
    given = read()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    logging.getLogger("py4j").setLevel(logging.WARNING)
    rows = list[Row]()
    try:
        if jobs := [name for name in given.jobs if name not in APART]:
            with platform() as settings:
                _run(settings, given, jobs, rows, _sent(settings, given))
        for name in (name for name in given.jobs if name in APART):
            with platform(APART[name]) as settings:
                _run(settings, given, [name], rows, Corpus(settings.home / "unused"))
    finally:  # a job that fails after an hour does not lose the others' results
        report.write(given.output, rows, given.events + given.warm_events)
        report.show(rows, Console(width=max(Console().width, WIDTH)))
    if PYTHON.exists():
        subprocess.run([str(PYTHON), "-P", str(PLOT), str(given.output)], check=True)
    else:
        log.info("no plot: `make bench` installs what draws it")


def _sent(settings: Settings, given: argparse.Namespace) -> Corpus:
    events = given.events + given.warm_events
    log.info("sending %s events", f"{events:,}")
    corpus = preload(settings, events, given.events)
    log.info("sent: %.0f events/s", corpus.events / corpus.seconds)
    return corpus


def _run(settings: Settings, given: argparse.Namespace, jobs: Sequence[str], rows: list[Row], corpus: Corpus) -> None:
    """Run the jobs that share a platform, and add their rows."""
    Suite(settings, corpus, given.seconds, Window(given.warm_seconds, given.events), rows=rows).run(jobs)


if __name__ == "__main__":
    main()
