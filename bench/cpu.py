"""CPU time by process, from /proc: the difference between two readings of the same process trees.

A reading adds up user and system time of every live process and of the children that it has already waited for, so a
worker that ends between two readings is not lost. The time of such a child counts for its parent's name.

CPU time says what a job costs, also if other programs delay it. `other_cores` says how many cores those programs used.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Event, Thread

import psutil

JVM, WORKERS, DRIVER = "jvm", "python workers", "python driver"

_BEAT_SECONDS = 0.25


class LostProcess(RuntimeError):
    """A process ended within the measurement, so its CPU time is unknown."""


@dataclass(frozen=True)
class Reading:
    """CPU seconds so far, by process name, and of all programs on the machine."""

    at: float
    seconds: Mapping[str, float]
    machine: float
    workers: Mapping[str, Mapping[int, float]] = field(default_factory=dict)  # the parts of Spark's Python processes


@dataclass(frozen=True)
class Used:
    """What was used between two readings."""

    wall: float
    seconds: Mapping[str, float]
    machine: float

    def per_event(self, events: float) -> dict[str, float]:
        """CPU microseconds per event by process. `all` is their sum."""
        each = {name: seconds * 1e6 / events for name, seconds in sorted(self.seconds.items())}
        return {**each, "all": sum(each.values())}

    @property
    def other_cores(self) -> float:
        """The number of cores that all other programs used on average."""
        return max(0.0, self.machine - sum(self.seconds.values())) / self.wall


@dataclass(frozen=True)
class Meter:
    """Process trees by name. `spark` is the root of a Spark application, whose processes have separate names.

    So have those of `applications`, each with its roots, behind the application's name.
    """

    roots: Mapping[str, int]
    spark: int | None = None
    applications: Mapping[str, Sequence[int]] = field(default_factory=dict)

    def read(self) -> Reading:
        total: defaultdict[str, float] = defaultdict(float)
        workers: defaultdict[str, dict[int, float]] = defaultdict(dict)
        named: set[int] = set()  # services may be descendants of the Spark application, if that is a benchmark process
        for name, root in self.roots.items():
            for process in _tree(root):
                total[name] += _seconds(process)
                named.add(process.pid)
        for process in _tree(self.spark) if self.spark is not None else ():
            if process.pid not in named:
                _add(process, "", total, workers)
        for name, each in self.applications.items():
            for process in (process for root in each for process in _tree(root)):
                _add(process, f"{name}: ", total, workers)
        whole = psutil.cpu_times()
        machine = sum(whole) - whole.idle - getattr(whole, "iowait", 0.0) - _twice(whole)
        return Reading(time.time(), total, machine, workers)


def _add(process: psutil.Process, of: str, total: dict[str, float], workers: dict[str, dict[int, float]]) -> None:
    """Add the time of a process of a Spark application."""
    name, seconds = of + spark_name(_command(process)), _seconds(process)
    total[name] += seconds
    if name.endswith(WORKERS):
        workers[name][process.pid] = seconds


def used(before: Reading, after: Reading) -> Used:
    """A process that ended and was not waited for by its tree would make a difference negative: that is an error.

    Spark ends a Python worker that was idle for a minute, and its daemon does not wait for it. What such a worker used
    until `before` does not count as used before, and what it used since then is unknown and left out.
    """
    ended = {
        name: sum(seconds for pid, seconds in parts.items() if pid not in after.workers.get(name, {}))
        for name, parts in before.workers.items()
    }
    seconds = {n: after.seconds[n] - before.seconds.get(n, 0.0) + ended.get(n, 0.0) for n in after.seconds}
    lost = {name for name in before.seconds if name not in after.seconds} | {n for n, s in seconds.items() if s < -0.05}
    if lost:
        raise LostProcess(f"the processes {sorted(lost)} ended within the measurement")
    return Used(after.at - before.at, seconds, after.machine - before.machine)


def spark_name(command: str) -> str:
    """The name of a process of a Spark application, from its command line."""
    if command.split(" ", 1)[0].rsplit("/", 1)[-1] == "java":
        return JVM
    return WORKERS if "python_daemon" in command or "pyspark.daemon" in command else DRIVER


class Recorder:
    """Readings at regular intervals, for a window that is known only afterwards. `stop` ends the intervals."""

    def __init__(self, meter: Meter) -> None:
        self._meter, self._readings, self._done = meter, [meter.read()], Event()
        self._thread = Thread(target=self._run, name="recorder", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._done.set()
        self._thread.join()

    def between(self, begin: float, end: float) -> Used:
        """The use between the last readings before two times, when the processes had not ended yet."""

        def last(when: float) -> Reading:
            return [each for each in self._readings if each.at <= when or each is self._readings[0]][-1]

        return used(last(begin), last(end))

    def _run(self) -> None:
        while not self._done.wait(_BEAT_SECONDS):
            self._readings.append(self._meter.read())


def measured(meter: Meter, run: Callable[[], object]) -> Used:
    """The use of one call."""
    before = meter.read()
    run()
    return used(before, meter.read())


def _tree(root: int) -> list[psutil.Process]:
    try:
        process = psutil.Process(root)
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _seconds(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
    except psutil.NoSuchProcess:  # its parent has its time at the next reading
        return 0.0
    return times.user + times.system + times.children_user + times.children_system


def _command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def _twice(whole: object) -> float:
    """Guests' time, which Linux counts in user and nice time already."""
    return float(getattr(whole, "guest", 0.0) + getattr(whole, "guest_nice", 0.0))
