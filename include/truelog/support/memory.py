"""How much memory processes take together."""

from collections.abc import Iterable

import psutil


def megabytes(processes: Iterable[psutil.Process]) -> float:
    """Of all of them; what they share is counted once (Linux), one that has ended not at all."""
    total = 0
    for process in processes:
        try:
            full = process.memory_full_info()
        except psutil.Error:
            continue
        total += getattr(full, "pss", full.rss)
    return round(total / 1e6, 1)
