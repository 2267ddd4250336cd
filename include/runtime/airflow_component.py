"""`python -m runtime.airflow_component scheduler …`: the command `airflow`, whose processes end when it does.

A scheduler that is killed would leave its idle workers behind, and with each kill more of them.
"""

import ctypes
import os
import signal
import sys

from airflow.__main__ import main

PR_SET_PDEATHSIG = 1
TIED = 2  # generations: an executor's worker, and the task that it runs; what a task forks is the task's own

_generation = 0


def _tie() -> None:
    global _generation  # noqa: PLW0603  it counts in each process by itself
    _generation += 1
    if _generation <= TIED:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    if sys.platform == "linux":
        os.register_at_fork(after_in_child=_tie)
    main()  # type: ignore[no-untyped-call]
