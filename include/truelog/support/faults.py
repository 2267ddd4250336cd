"""Fault injection: named points in the protocols where a test can make a real process fail.

`TRUELOG_FAULT="merge.staged:3:kill"` kills this process with SIGKILL the third time that it reaches the point.
`stop` suspends the process instead, so that a test can resume it after its successor has started. `raise` raises an
exception.
Before it fails, the process writes the file whose path is in `TRUELOG_FAULT_FIRED`, so that a test can distinguish a
fault that never fired from a fault that the platform survived. Outside tests, `TRUELOG_FAULT` is unset, and each point
costs one comparison.
"""

import os
import signal
import threading
from pathlib import Path

_armed = os.environ.get("TRUELOG_FAULT", "")
_reached = 0


class FaultInjectedError(RuntimeError):
    """The fault that a test injects with `raise`."""


def reach(point: str) -> None:
    """Mark that the protocol has reached `point`, and fail if a test injected a fault there."""
    global _reached  # noqa: PLW0603
    if not _armed or not _armed.startswith(f"{point}:"):
        return
    _, nth, action = _armed.split(":")
    _reached += 1
    if _reached != int(nth):
        return
    Path(os.environ["TRUELOG_FAULT_FIRED"]).write_text(f"{_armed}\n")
    if action == "raise":
        raise FaultInjectedError(point)
    # A signal that a thread sends to itself arrives before its next step; a signal to the process may arrive later.
    signal.pthread_kill(threading.get_ident(), signal.SIGKILL if action == "kill" else signal.SIGSTOP)
