"""Runs a command while two processes keep both cores busy: `python -m tests.nightly.load COMMAND…`.

The busy processes have normal priority. They end with this process, however it ends, and after `MOST_SECONDS` in any
case.
"""

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

BUSY = 2  # processes
MOST_SECONDS = 4 * 3_600
# The loop looks for its parent itself. Linux can also end a process with its parent, but only from the moment at which
# the process asks for that, and a busy machine may kill the parent before.
_LOOP = """import os, sys, time
end, parent = time.monotonic() + float(sys.argv[1]), int(sys.argv[2])
while time.monotonic() < end and os.getppid() == parent:
    pass
"""


@contextmanager
def busy(processes: int = BUSY, seconds: float = MOST_SECONDS) -> Iterator[list["subprocess.Popen[bytes]"]]:
    """Keep so many cores busy during the block."""
    loop = [sys.executable, "-I", "-S", "-c", _LOOP, str(seconds), str(os.getpid())]
    with ExitStack() as started:
        running = []
        for _ in range(processes):
            each = subprocess.Popen(loop)
            started.callback(each.wait)
            started.callback(each.kill)
            running.append(each)
        yield running


def main(command: Sequence[str]) -> int:
    with busy() as running:
        ended = subprocess.run(command, check=False)
        if any(each.poll() is not None for each in running):
            sys.stderr.write("a busy process has ended before the command, so the command ran without load\n")
            return 1
    return ended.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
