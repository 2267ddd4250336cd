"""Prints the wall and CPU seconds of each test file, and compares the CPU seconds of a whole run with a record.

The CPU seconds of a file are what the worker and its family of processes used from the end of the file before until the
file's end (`cpu_meter.py` says what that includes). Services that live longer than a file count for the file that runs.
A worker's start, and the process that distributes the files, have lines of their own.
"""

import os
import time
from collections import defaultdict
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.plugins.cost_record import FILE, CostRecord, incomparable, judge, read_record, reference_work, write_record
from tests.plugins.cpu_meter import CpuMeter

_START, _CONTROLLER = "(starts of the workers)", "(distribution of the files)"
_PRINTED = 30  # files
_PLUGIN = "costs"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--costs",
        choices=("print", "judge", "record"),
        default="print",
        help="what to do with the costs of a whole run",
    )


def pytest_configure(config: pytest.Config) -> None:
    is_controller = _workers(config) and not hasattr(config, "workerinput")
    config.pluginmanager.register(Controller() if is_controller else Worker(config), _PLUGIN)


def _workers(config: pytest.Config) -> int:
    return len(config.getoption("tx", None) or ())


@dataclass
class Costs:
    """What a run, or one of its workers, has cost. Files have pairs of wall and CPU seconds."""

    files: dict[str, tuple[float, float]] = field(default_factory=lambda: defaultdict(lambda: (0.0, 0.0)))
    reference: list[float] = field(default_factory=list)

    def add(self, file: str, wall: float, cpu: float) -> None:
        before = self.files[file]
        self.files[file] = before[0] + wall, before[1] + cpu

    def merge(self, other: dict[str, Any]) -> None:
        for file, (wall, cpu) in other["files"].items():
            self.add(file, wall, cpu)
        self.reference += other["reference"]

    def record(self, config: pytest.Config) -> CostRecord:
        files = {file: cpu for file, (_, cpu) in self.files.items()}
        mean = sum(self.reference) / len(self.reference)
        selected = " ".join(filter(None, [config.option.markexpr, config.getoption("shard", None)]))
        return CostRecord(selected, max(1, _workers(config)), mean, files)


class Reporter:
    """Prints the costs of a run, and judges or records them."""

    def __init__(self) -> None:
        self.costs = Costs()
        self._lines: list[str] = []

    def report(self, session: pytest.Session, exitstatus: int) -> None:
        mode = session.config.option.costs
        if mode == "print":
            return
        if exitstatus != pytest.ExitCode.OK:
            self._lines = ["The costs are neither judged nor recorded, because the run has failed."]
            return
        now, project = self.costs.record(session.config), session.config.rootpath
        if mode == "record":
            write_record(project, now)
            self._lines = [f"Recorded {now.total:,.0f} CPU seconds in {FILE}."]
            return
        recorded = read_record(project)
        why = incomparable(now, recorded) if recorded else "there is no record; `make test COSTS=record` writes it"
        if why or not recorded:
            self._lines = [f"The costs are not judged: {why}."]
        elif wrong := judge(now, recorded):
            self._lines = wrong.splitlines()
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        files = sorted(self.costs.files.items(), key=lambda each: -each[1][1])
        if not files:
            return
        terminalreporter.write_sep("=", "wall and CPU seconds by file")
        rest = [costs for _, costs in files[_PRINTED:]]
        lines = files[:_PRINTED] + ([(f"({len(rest)} other files)", _sum(rest))] if rest else [])
        for name, (wall, cpu) in [*lines, ("sum", _sum([costs for _, costs in files]))]:
            terminalreporter.write_line(f"{wall:8.1f} {cpu:8.1f}  {name}")
        mean = sum(self.costs.reference) / max(1, len(self.costs.reference))
        terminalreporter.write_line(f"reference work: {mean * 1000:.1f} ms")
        for line in self._lines:
            terminalreporter.write_line(line)


def _sum(costs: list[tuple[float, float]]) -> tuple[float, float]:
    return sum(wall for wall, _ in costs), sum(cpu for _, cpu in costs)


class Worker(Reporter):
    """Measures the files of a process that runs tests."""

    def __init__(self, config: pytest.Config) -> None:
        super().__init__()
        self._config = config
        self._meter = CpuMeter(os.getpid())
        self._wall, self._cpu = time.monotonic(), 0.0

    def pytest_sessionstart(self) -> None:
        self._meter.start()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(
        self, item: pytest.Item, nextitem: pytest.Item | None
    ) -> Generator[None, object, object]:
        self._count_start()
        result = yield
        if nextitem is None or nextitem.path != item.path:
            self._count(item.nodeid.partition("::")[0])
        return result

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        self._count_start()
        self._meter.stop()
        if hasattr(self._config, "workeroutput"):
            files = {file: list(costs) for file, costs in self.costs.files.items()}
            self._config.workeroutput["costs"] = {"files": files, "reference": self.costs.reference}
        else:
            self.report(session, exitstatus)

    def _count_start(self) -> None:
        """Count what came before the first test. A worker waits for the others then, and its meter works meanwhile."""
        if not self.costs.files:
            self._count(_START)

    def _count(self, file: str) -> None:
        """Count what was used since the last call for this file. The reference work counts for no file."""
        wall, cpu = time.monotonic(), self._meter.seconds()
        self.costs.add(file, wall - self._wall, cpu - self._cpu)
        self.costs.reference.append(reference_work())
        self._wall, self._cpu = time.monotonic(), self._meter.seconds()


class Controller(Reporter):
    """Adds up what the workers have measured."""

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        if costs := getattr(node, "workeroutput", {}).get("costs"):  # a worker that has crashed has none
            self.costs.merge(costs)

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        self.costs.add(_CONTROLLER, 0.0, time.process_time())
        self.report(session, exitstatus)
