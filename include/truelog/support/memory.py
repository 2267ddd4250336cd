"""Memory use of a group of processes."""

from collections.abc import Iterable

import psutil


def megabytes(processes: Iterable[psutil.Process]) -> float:
    """The processes' total memory. On Linux, shared memory counts once. A process that has exited counts as zero."""
    total = 0
    for process in processes:
        try:
            full = process.memory_full_info()
        except psutil.Error:
            continue
        total += getattr(full, "pss", full.rss)
    return round(total / 1e6, 1)
