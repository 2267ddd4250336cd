"""Wait until a condition holds, until a deadline passes, or until an outage is over. All but `poll` log the reason."""

import logging
import math
import time
from collections.abc import Callable
from threading import Event
from typing import TypeVar

import psycopg

from truelog.support.errors import ServiceDown

OUTAGES = (psycopg.OperationalError, ServiceDown)

log = logging.getLogger("truelog.wait")

SHORTEST_PAUSE, LONGEST_PAUSE = 0.1, 0.5
PAUSE_SHARE = 0.05  # share of the time waited so far: each check takes CPU time from the process that must become ready
FIRST_LOGGED = 5.0  # seconds; the next messages follow after twice that time, after four times that time, and so on
LIVE = {"live": True}  # marks the messages that a terminal shows in one changing line
OUTAGE_PAUSE = 0.5

_Result = TypeVar("_Result")


def until(condition: Callable[[], None], seconds: float, what: str) -> float:
    """Call `condition` until it no longer raises ServiceDown. Return the number of seconds waited.

    Raises:
        ServiceDown: the condition did not hold within `seconds`.
    """
    began, logged_next = time.monotonic(), FIRST_LOGGED
    try:
        while True:
            try:
                condition()
            except ServiceDown as reason:
                waited = time.monotonic() - began
                if waited > seconds:
                    raise ServiceDown(f"{what}: not ready within {seconds:.0f} s: {reason}") from reason
                is_due = waited > logged_next
                logged_next *= 1 + is_due
                level = logging.INFO if is_due else logging.DEBUG
                log.log(level, "%s: waiting, %.0f s so far: %s", what, waited, reason, extra=LIVE)
                time.sleep(min(LONGEST_PAUSE, max(SHORTEST_PAUSE, PAUSE_SHARE * waited)))
            else:
                return time.monotonic() - began
    finally:
        log.debug("", extra=LIVE)


def poll(holds: Callable[[], bool], seconds: float, pause: float) -> bool:
    """Check a condition until it holds, for at most `seconds`. Return whether it holds."""
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() >= end:
            return False
        time.sleep(pause)
    return True


def outlast(
    work: Callable[[], _Result],
    stop: Event,
    outages: tuple[type[Exception], ...] = OUTAGES,
    seconds: float = math.inf,
    meanwhile: Callable[[], object] = lambda: None,
) -> _Result:
    """Do what a process needs when it starts. While a service does not answer, try again.

    `meanwhile` is called after the first failure: it prepares what follows, and needs no service.

    Otherwise the process would end and begin again with its imports. All processes would then be importing at the
    moment at which the services are back. A new reason for waiting is logged at once, and a reason that lasts at
    growing intervals, because it may be a wrong password.

    Raises: the outage, after `seconds`, or if `stop` is set meanwhile.
    """
    began, said, logged_next = time.monotonic(), "", FIRST_LOGGED
    while True:
        try:
            return work()
        except outages as error:
            if stop.wait(OUTAGE_PAUSE) or time.monotonic() > began + seconds:
                raise
            if not said:
                meanwhile()
            reason = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
            is_due = time.monotonic() - began > logged_next
            if reason != said or is_due:
                log.warning("a start waits for its services after %s", reason)
            said, logged_next = reason, logged_next * (1 + is_due)
