"""Wait until a condition holds or a deadline passes. `until` also logs the reason for the wait."""

import logging
import time
from collections.abc import Callable

from truelog.support.errors import ServiceDown

log = logging.getLogger("truelog.wait")

SHORTEST_PAUSE, LONGEST_PAUSE = 0.1, 0.5
PAUSE_SHARE = 0.05  # share of the time waited so far: each check takes CPU time from the process that must become ready
FIRST_LOGGED = 5.0  # seconds; the next messages follow after twice that time, after four times that time, and so on
LIVE = {"live": True}  # marks the messages that a terminal shows in one changing line


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
