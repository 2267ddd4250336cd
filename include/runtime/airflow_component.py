"""`python -m runtime.airflow_component scheduler …`: the command `airflow`, whose processes end when it does.

A scheduler that is killed would leave its idle workers behind, and with each kill more of them. One that is done
leaves at once: Python would take everything apart that Airflow has loaded, which takes a busy machine twenty seconds.
"""

import atexit
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


def _run() -> int:
    """The exit code; what is no number is left to Python to tell."""
    try:
        main()  # type: ignore[no-untyped-call]
    except SystemExit as ended:
        if isinstance(ended.code, str):
            raise
        return ended.code or 0
    return 0


if __name__ == "__main__":
    if sys.platform == "linux":
        os.register_at_fork(after_in_child=_tie)
    code = _run()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
