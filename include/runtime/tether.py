"""Runs a command that ends with its parent: `tether.py SIGNAL USER COMMAND…` (USER "-" is the current user).

If a supervisor is killed, its services must end too. Otherwise they would occupy the ports that the next supervisor
needs. If it runs as root, this script switches the user itself, because a change of user after it would reset the
parent-death signal.
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
    os.execv(command[0], command)  # noqa: S606  deliberately without a shell


if __name__ == "__main__":
    main(*sys.argv[1:])
