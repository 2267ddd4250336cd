"""Waiting in small steps: what is measured here is over sooner than `runtime.wait` looks twice."""

import threading
import time
from collections.abc import Callable, Iterator

from truelog.support.errors import TruelogError


class TooSlow(TruelogError):
    """A job was not done within its time; the message says which."""


def every(seconds: float, *, within: float, what: str) -> Iterator[float]:
    """The time, again and again, until the caller has seen enough.

    Raises:
        TooSlow: it has not within its time.
    """
    pause, deadline = threading.Event(), time.monotonic() + within
    while time.monotonic() < deadline:
        yield time.time()
        pause.wait(seconds)
    raise TooSlow(f"{what}: not done within {within:.0f} s")


def first(seconds: float, met: Callable[[], bool], *, within: float, what: str) -> float:
    """The time at which a condition was first seen met."""
    for now in every(seconds, within=within, what=what):
        if met():
            return now
    raise AssertionError("every() goes on or raises")
