"""Named points of the protocols, at which a test can make a real process fail.

`TRUELOG_FAULT="merge.staged:3:kill"` kills this process with SIGKILL the third time that it reaches the point;
`stop` suspends it instead (a zombie, once its successor began), `raise` raises. The fault writes the file named by
`TRUELOG_FAULT_FIRED` first, so that a fault which never fired can be told from one that was survived.
Unset, which is always so outside tests, a point costs one comparison.
"""

import os
import signal
import threading
from pathlib import Path

_armed = os.environ.get("TRUELOG_FAULT", "")
_reached = 0


class FaultInjectedError(RuntimeError):
    """The fault that a test asked for with `raise`."""


def reach(point: str) -> None:
    """Say that the protocol stands at `point`; fail here if a test asked for it."""
    global _reached  # noqa: PLW0603
    if not _armed or not _armed.startswith(f"{point}:"):
        return
    _, nth, how = _armed.split(":")
    _reached += 1
    if _reached != int(nth):
        return
    Path(os.environ["TRUELOG_FAULT_FIRED"]).write_text(f"{_armed}\n")
    if how == "raise":
        raise FaultInjectedError(point)
    # To this thread, which takes it before its next step; one sent to the process may let it go on for a while.
    signal.pthread_kill(threading.get_ident(), signal.SIGKILL if how == "kill" else signal.SIGSTOP)
