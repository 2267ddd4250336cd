"""`python -m runtime.airflow_component scheduler …`: runs `airflow scheduler` so that its worker processes end with it.

Otherwise a killed scheduler would leave its idle workers behind. The process exits as soon as the command ends, because
a normal interpreter shutdown takes 20 seconds on a busy machine.
"""

import atexit
import ctypes
import os
import signal
import sys

from airflow.__main__ import main

PR_SET_PDEATHSIG = 1
TIED = 2  # generations to tie: the executor's worker and its task, but not the processes that a task forks

_generation = 0


def _tie() -> None:
    global _generation  # noqa: PLW0603  each process counts for itself
    _generation += 1
    if _generation <= TIED:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _run() -> int:
    """Run the command and return its exit code. If the exit code is a message, Python itself prints it."""
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
