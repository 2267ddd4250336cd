"""Waiting for a condition with a deadline, telling what it waits for."""

import logging
import time
from collections.abc import Callable

from truelog.support.errors import ServiceDown

log = logging.getLogger("truelog.runtime")

SHORTEST_PAUSE, LONGEST_PAUSE = 0.1, 0.5
SHARE = 0.05  # of what was waited: asking costs the processor that is waited for
TELL_EVERY = 5.0


def until(condition: Callable[[], None], seconds: float, what: str) -> float:
    """Call `condition` until it no longer raises ServiceDown; how long that took."""
    began = time.monotonic()
    told = began
    while True:
        try:
            condition()
        except ServiceDown as reason:
            now = time.monotonic()
            if now - began > seconds:
                raise ServiceDown(f"{what}: not ready within {seconds:.0f} s: {reason}") from reason
            if now - told > TELL_EVERY:
                told = now
                log.info("%s: waiting, %.0f s so far: %s", what, now - began, reason)
            time.sleep(min(LONGEST_PAUSE, max(SHORTEST_PAUSE, SHARE * (now - began))))
        else:
            return time.monotonic() - began
