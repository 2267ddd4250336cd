"""Whether a process still does anything."""

import psutil


def is_alive(process: psutil.Process) -> bool:
    """One that nobody has asked how it ended is no process any more."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
