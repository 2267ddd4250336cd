"""Ports of this machine: free ports for a new home, and who has a port that a service needs."""

import random
import socket
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from functools import cache
from itertools import cycle, islice

import psutil

from truelog.support.errors import ServiceDown
from truelog.support.wait import poll

LOOPBACK = "127.0.0.1"
# Below Linux's ephemeral ports, because a client that has a service's port would block a restart of the service.
_BLOCKS = tuple(range(first, first + 500) for first in range(10_000, 32_000, 500))
_LEAVE_SECONDS = 10.0  # in which the processes of a service that was stopped just now leave its port


def free(candidates: Mapping[str, Iterable[int]]) -> dict[str, int]:
    """For each name, its first candidate that is free. Every port stays bound until the last port is found."""
    with ExitStack() as held:
        return {name: _free(numbers, held) for name, numbers in candidates.items()}


def _free(candidates: Iterable[int], held: ExitStack) -> int:
    for port in candidates:
        taken = held.enter_context(socket.socket())
        try:
            taken.bind((LOOPBACK, port))
        except OSError:
            continue
        return int(taken.getsockname()[1])
    raise OSError(f"no free port on {LOOPBACK}")


def of_this_process() -> Iterator[int]:
    """Candidates that no other process gets while this process runs."""
    _, numbers = _own_block()
    return islice(numbers, len(_BLOCKS[0]))


@cache
def _own_block() -> tuple[socket.socket, Iterator[int]]:
    """A block of ports, and the socket that claims it for this process.

    A port that is free now may belong to an environment of another process whose service starts later.
    """
    for block in random.sample(_BLOCKS, len(_BLOCKS)):
        claim = socket.socket()
        try:
            claim.bind((LOOPBACK, block.start))
        except OSError:
            claim.close()
        else:
            return claim, cycle(block[1:])
    raise OSError(f"other processes have all blocks of ports on {LOOPBACK}")


def require_free(port: int, service: str, cure: str) -> None:
    """Require that a service which does not run may have its port.

    Otherwise the service would try to start again and again, and another platform's service could answer for it.

    Raises:
        ServiceDown: another process listens at the port.
    """
    if not poll(lambda: _is_free(port), _LEAVE_SECONDS, 0.1):
        raise ServiceDown(f"{service}: {_holder(port)} has port {port}. Stop it, or {cure}.")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # former connections do not count
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def _holder(port: int) -> str:
    """The process that listens at a port, as far as this user may see that."""
    with suppress(psutil.Error):
        for each in psutil.net_connections("tcp"):
            if each.status == psutil.CONN_LISTEN and each.laddr and each.laddr.port == port and each.pid:
                return f"process {each.pid} ({psutil.Process(each.pid).name()})"
    return "another process"
