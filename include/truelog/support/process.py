"""The imports of a process, its stacks, and its liveness."""

import faulthandler
import gc
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import psutil


@contextmanager
def quick_imports() -> Iterator[None]:
    """Collect no garbage in this block of imports, and never look at what they have made.

    Imports make many objects and little garbage. The collector takes a quarter of the time of a large import.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def show_stacks_on_signal() -> None:
    """On SIGUSR2, write what each Python thread does now to standard error, which is the log of an application."""
    faulthandler.register(signal.SIGUSR2, all_threads=True)


def is_alive(process: psutil.Process) -> bool:
    """False for a zombie, which has exited although its parent has not collected its exit status yet."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def seconds_from_boot(process: psutil.Process) -> float:
    """When the process started, in seconds after the start of its machine. A step of the clock does not change it."""
    return process.create_time() - psutil.boot_time()
