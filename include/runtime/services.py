"""The embedded platform as a whole: up, down, status."""

import logging
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from xmlrpc.client import Fault

import psutil

from runtime import kafka, keeper, postgresql, s3
from runtime.service import Service, log_file
from runtime.wait import until
from truelog.errors import ServiceDown
from truelog.settings import Settings

log = logging.getLogger("truelog.runtime")

READY_SECONDS = 90
SERVICES = {service.name: service for service in (postgresql.SERVICE, kafka.SERVICE, s3.SERVICE)}
EVERY = tuple(SERVICES)


@dataclass(frozen=True)
class State:
    """One service as it is now; `state` is READY, STARTING or STOPPED."""

    name: str
    state: str
    pid: int | None
    memory_mb: float | None
    address: str


def up(settings: Settings, services: Iterable[str] = EVERY, *, tethered: bool = False) -> None:
    """Start these services side by side and return when each has answered an authenticated call.

    A tethered platform goes down with the process that asked for it.
    """
    keeper.supervise(settings, SERVICES.values(), tethered=tethered)
    with ThreadPoolExecutor(len(SERVICES)) as pool:
        for done in [pool.submit(_bring_up, settings, SERVICES[name]) for name in services]:
            done.result()


def down(settings: Settings) -> None:
    """Stop everything, the supervisor last; quiet where nothing runs."""
    if keeper.is_up(settings):
        keeper.shut_down(settings)
        log.info("all services have stopped")


def status(settings: Settings) -> list[State]:
    return [_state(settings, service) for service in SERVICES.values()]


def processes(settings: Settings) -> Iterator[psutil.Process]:
    """Every process of every service, for those who watch memory and ports."""
    for state in status(settings):
        if state.pid is not None:
            yield from _family(state.pid)


def _bring_up(settings: Settings, service: Service) -> None:
    service.configure(settings)
    keeper.start(settings, service.name)
    what = f"{service.name} (log: {log_file(settings, service.name)})"
    seconds = until(lambda: service.ready(settings), READY_SECONDS, what)
    service.prepare(settings)
    log.info("%s: ready at %s after %.1f s", service.name, service.address(settings), seconds)


def _state(settings: Settings, service: Service) -> State:
    address = service.address(settings)
    try:
        pid = keeper.state(settings, service.name)["pid"] or None
    except (OSError, Fault):
        pid = None
    if pid is None:
        return State(service.name, "STOPPED", None, None, address)
    try:
        service.ready(settings)
    except ServiceDown:
        return State(service.name, "STARTING", pid, _memory(pid), address)
    return State(service.name, "READY", pid, _memory(pid), address)


def _memory(pid: int) -> float:
    """Megabytes of the process and its children; what they share is counted once (Linux)."""
    total = 0
    for process in _family(pid):
        try:
            full = process.memory_full_info()
        except psutil.Error:
            continue
        total += getattr(full, "pss", full.rss)
    return round(total / 1e6, 1)


def _family(pid: int) -> list[psutil.Process]:
    try:
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []
