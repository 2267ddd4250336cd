"""Memory use of a group of processes."""

from collections.abc import Iterable

import psutil


def megabytes(processes: Iterable[psutil.Process]) -> float:
    """Total memory of the processes. Shared memory counts once (on Linux); a process that has ended counts nothing."""
    total = 0
    for process in processes:
        try:
            full = process.memory_full_info()
        except psutil.Error:
            continue
        total += getattr(full, "pss", full.rss)
    return round(total / 1e6, 1)
