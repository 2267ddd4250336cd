"""Wait until a condition holds or a deadline passes, and log the reason for the wait."""

import logging
import time
from collections.abc import Callable

from truelog.support.errors import ServiceDown

log = logging.getLogger("truelog.runtime")

SHORTEST_PAUSE, LONGEST_PAUSE = 0.1, 0.5
PAUSE_SHARE = 0.05  # share of the time waited so far: each check takes CPU time from the process that must become ready
LOG_EVERY = 5.0


def until(condition: Callable[[], None], seconds: float, what: str) -> float:
    """Call `condition` until it no longer raises ServiceDown. Return the number of seconds waited.

    Raises:
        ServiceDown: the condition did not hold within `seconds`.
    """
    began = time.monotonic()
    logged_at = began
    while True:
        try:
            condition()
        except ServiceDown as reason:
            now = time.monotonic()
            if now - began > seconds:
                raise ServiceDown(f"{what}: not ready within {seconds:.0f} s: {reason}") from reason
            if now - logged_at > LOG_EVERY:
                logged_at = now
                log.info("%s: waiting, %.0f s so far: %s", what, now - began, reason)
            time.sleep(min(LONGEST_PAUSE, max(SHORTEST_PAUSE, PAUSE_SHARE * (now - began))))
        else:
            return time.monotonic() - began
