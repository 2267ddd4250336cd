"""Liveness of a process."""

import psutil


def is_alive(process: psutil.Process) -> bool:
    """False for a zombie, which has exited although its parent has not collected its exit status yet."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
