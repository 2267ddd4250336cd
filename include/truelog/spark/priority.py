"""The priority of batch work, which shares the machine with the streams.

Readers wait for the streams, and a comparison can wait. Batch jobs therefore get the time that the streams leave, and
use half of the cores where there are more than two.
"""

import math
import os
from pathlib import Path

NICENESS = 10
_QUOTA = Path("/sys/fs/cgroup/cpu.max")  # of a container: microseconds of CPU time in a period, and those of the period


def yield_to_streams() -> None:
    """Give this process, and the processes that it starts from now on, a lower priority than the streams have."""
    os.setpriority(os.PRIO_PROCESS, 0, max(NICENESS, os.getpriority(os.PRIO_PROCESS, 0)))


def batch_cores(cores: int) -> int:
    """How many of these cores a batch job uses."""
    return cores if cores <= 2 else math.ceil(cores / 2)


def usable_cores(quota: Path = _QUOTA) -> int:
    """How many cores this process may use."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if quota.exists():
        limit, period = quota.read_text().split()
        cores = cores if limit == "max" else min(cores, math.ceil(int(limit) / int(period)))
    return cores
