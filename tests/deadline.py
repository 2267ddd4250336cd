"""Deadlines of tests. One factor multiplies each of them, because a busy machine needs longer for the same work.

A longer deadline costs time only if a test is red. `DEADLINE_FACTOR=4` in the environment is what CI uses.
"""

import os
from collections.abc import Callable

from truelog.support import wait

FACTOR = float(os.environ.get("DEADLINE_FACTOR", "1"))


def deadline(limit: float) -> float:
    """The limit of a wait, in the unit that it is given in."""
    return FACTOR * limit


def until(condition: Callable[[], None], seconds: float, what: str) -> float:
    """Wait until the condition no longer raises ServiceDown, as `truelog.support.wait.until` does."""
    return wait.until(condition, deadline(seconds), what)
