"""Run a command that ends when its parent does: `tether.py SIGNAL USER COMMAND…` (USER "-": as you are).

A supervisor that is killed takes its services along, which would hold their ports against the next one.
Root steps down here and not in the supervisor, because a later change of user would untie the knot.
"""

import ctypes
import os
import pwd
import signal
import sys

PR_SET_PDEATHSIG = 1


def main(ending: str, user: str, *command: str) -> None:
    parent = os.getppid()
    os.chdir("/")
    if user != "-":
        entry = pwd.getpwnam(user)
        os.setgroups([])
        os.setgid(entry.pw_gid)
        os.setuid(entry.pw_uid)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.Signals[f"SIG{ending}"])
    if os.getppid() != parent:
        sys.exit("the parent died first")
    os.execv(command[0], command)  # noqa: S606  no shell is the point


if __name__ == "__main__":
    main(*sys.argv[1:])
