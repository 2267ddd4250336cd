"""Measures the CPU seconds of a process and of everything that it has started: services, applications, JVMs, workers.

When a process ends, the kernel adds its time to the parent that reaps it. The sum over all living processes, each with
the children that it has reaped, therefore counts each second once. Time disappears from this sum only if init reaps a
process, for example the JVM of an application that a scene has killed. The sum then falls. The meter samples the sum
and adds up only its increases, so it loses at most what was used since the sample before such a kill.

The meter remembers every process that it has seen, so a process whose parent has ended is still counted. It does not
see a process that starts and loses its parent between two samples. It reads a stranger only once, because a process
that has another parent never joins the family, and each worker's meter sees the processes of all workers.
"""

import os
import threading
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

SAMPLE_SECONDS = 0.5
_TICKS = os.sysconf("SC_CLK_TCK")
_PROC = Path("/proc")


@dataclass(frozen=True)
class Process:
    """A line of the kernel's table of processes. `seconds` includes the children that the process has reaped."""

    parent: int
    started: int  # in clock ticks after the boot: tells apart two processes with the same id
    seconds: float


def list_processes() -> set[int]:
    return {int(name) for name in os.listdir(_PROC) if name.isdecimal()}


def read_processes(pids: Iterable[int]) -> dict[int, Process]:
    """Those of these processes that have not ended."""
    found = {}
    for pid in pids:
        try:
            with open(f"/proc/{pid}/stat", "rb") as file:
                stat = file.read()
        except OSError:  # the process has ended
            continue
        # The name before the last parenthesis may contain spaces and parentheses.
        fields = stat[stat.rindex(b")") + 2 :].split()
        found[pid] = Process(int(fields[1]), int(fields[19]), sum(map(int, fields[11:15])) / _TICKS)
    return found


class CpuMeter:
    """The CPU seconds that this process and its family have used so far."""

    def __init__(self, root: int) -> None:
        self._root = root
        self._known: dict[int, int] = {}  # when each process of the family started, by its id
        self._strangers: set[int] = set()
        self._last = self._seconds = 0.0
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="cpu-meter", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()

    def seconds(self) -> float:
        with self._lock:
            living = list_processes()
            self._strangers &= living
            table = read_processes(living - self._strangers)
            used = self.sampled(table)
            self._strangers.update(pid for pid in table.keys() - self._known if table[pid].parent in living)
            return used

    def sampled(self, table: Mapping[int, Process]) -> float:
        """The seconds after this sample."""
        self._known = self._family(table)
        now = sum(table[pid].seconds for pid in self._known)
        self._seconds += max(0.0, now - self._last)
        self._last = now
        return self._seconds

    def _family(self, table: Mapping[int, Process]) -> dict[int, int]:
        children = defaultdict(list)
        for pid, process in table.items():
            children[process.parent].append(pid)
        family: dict[int, int] = {}
        remaining = [self._root] if self._root in table else []
        remaining += [pid for pid, started in self._known.items() if pid in table and table[pid].started == started]
        while remaining:
            pid = remaining.pop()
            if pid not in family:
                family[pid] = table[pid].started
                remaining += children[pid]
        return family

    def _run(self) -> None:
        while not self._ended.wait(SAMPLE_SECONDS):
            self.seconds()
