"""Polling at short intervals, because the measured times are shorter than the interval of `truelog.support.wait`."""

import threading
import time
from collections.abc import Callable, Iterator

from truelog.support.errors import TruelogError


class TooSlow(TruelogError):
    """A job exceeded its time limit; the message names the job."""


def every(interval: float, *, within: float, what: str) -> Iterator[float]:
    """Yield the current time at regular intervals until the caller stops iterating.

    Raises:
        TooSlow: the caller is still iterating after `within` seconds.
    """
    pause, deadline = threading.Event(), time.monotonic() + within
    while time.monotonic() < deadline:
        yield time.time()
        pause.wait(interval)
    raise TooSlow(f"{what}: not done within {within:.0f} s")


def first(interval: float, met: Callable[[], bool], *, within: float, what: str) -> float:
    """Return the time when a condition is first met."""
    for now in every(interval, within=within, what=what):
        if met():
            return now
    raise AssertionError("every() yields or raises")
