"""Runs a command of Truelog, and counts the CPU time of all its processes for the process that calls `run`.

`truelog` ends without its Java, which ends soon after it. Linux adds the CPU time of a process only to a parent that
waits for it, so the time of this Java would be lost. `python -m bench.command COMMAND ARGUMENT…` is a process to which
Linux hands what the command leaves behind, and it waits for that too.
"""

import ctypes
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress

_PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
_CLI = (sys.executable, "-c", "from truelog.cli.main import main; main()")


def run(arguments: Sequence[str], stdout: int | None = None) -> None:
    """Run the command, and wait for all its processes.

    Raises:
        CalledProcessError: its exit code is not 0.
    """
    waiting = (sys.executable, "-m", "bench.command", *_CLI, *arguments)
    subprocess.run(waiting, check=True, stdin=subprocess.DEVNULL, stdout=stdout)


def main(command: Sequence[str]) -> int:
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    code = subprocess.call(command)
    with suppress(ChildProcessError):
        while True:
            os.wait()
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
