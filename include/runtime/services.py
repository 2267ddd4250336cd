"""The embedded platform as a whole: its start, stop and status."""

import logging
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from xmlrpc.client import Fault

import psutil
import psycopg

from runtime import airflow, connect, foreign_names, kafka, keeper, own_services, ports, postgresql, s3
from runtime.service import Service, log_file
from truelog.apps import launcher
from truelog.control import event_files, foreign_events
from truelog.forgetting import reading
from truelog.support.errors import ServiceDown
from truelog.support.memory import megabytes
from truelog.support.settings import ENVIRONMENT_FILE, Settings
from truelog.support.wait import until

log = logging.getLogger("truelog.runtime")

READY_SECONDS = 180
# The services, in dependency order.
SERVICES = {
    service.name: service
    for service in (
        *(each.SERVICE for each in (postgresql, kafka, s3, connect)),
        *own_services.OWN,
        *airflow.SERVICES,
    )
}
EVERY = tuple(SERVICES)
# The event types are registered as soon as these services are ready, and all other services wait for that.
_STORES, _REGISTERED = {"postgresql", "kafka", "s3"}, "event registry"


@dataclass(frozen=True)
class State:
    """The current state of a service: READY, STARTING or STOPPED. `reason` says why the service is not ready."""

    name: str
    state: str
    pid: int | None
    memory_mb: float | None
    address: str
    reason: str = ""


def up(settings: Settings, services: Iterable[str] = EVERY, *, tethered: bool = False) -> None:
    """Start these services, in parallel as far as their dependencies allow, and return when all services are ready.

    Running services whose configurations have changed are started again, too. A tethered platform ends with the process
    that started it.
    """
    if settings.stores == "own":
        prepare_own_stores(settings)
    names = {*services, *keeper.supervise(settings, _wanted(settings), tethered=tethered)}
    chosen = [service for service in _wanted(settings) if service.name in names]
    _prepare_running(settings, _STORES - names)
    with ThreadPoolExecutor(len(SERVICES) + 1) as pool:
        started: dict[str, Future[None]] = {}
        for service in chosen:
            needed = [started[name] for name in (*service.after, _REGISTERED) if name in started]
            started[service.name] = pool.submit(_bring_up, settings, service, needed)
            if _REGISTERED not in started and started.keys() >= _STORES:
                started[_REGISTERED] = pool.submit(_register, settings, [started[name] for name in _STORES])
        for done in started.values():
            done.result()


def down(settings: Settings) -> None:
    """Stop everything. If nothing is running, do nothing.

    1. Stop Airflow, which would restart the applications.
    2. Stop the applications that have a lease, while the services that they need are still running.
    3. Stop the services that need other services, then the remaining services, then the supervisor.
    4. Stop the applications of this home that are left. An application that was just starting has no lease yet. If the
       supervisor has died, and the database with it, no lease is known. Each of them would wait for the services.
    """
    if keeper.is_up(settings):
        stop_airflow(settings)  # 1
        _stop_applications(settings)  # 2
        for needs_others in (True, False):  # 3
            _stop_together(settings, [each for each in _wanted(settings) if bool(each.after) is needs_others])
        keeper.shut_down(settings)
        log.info("all services have stopped")
    for name in launcher.stop_here(settings):  # 4
        log.info("%s has stopped", name)


def stop_airflow(settings: Settings) -> None:
    """Stop Airflow's components. The api-server stops last, because the others need it until they end."""
    api, *others = airflow.SERVICES
    _stop_together(settings, others)
    _stop_together(settings, [api])


def _stop_together(settings: Settings, services: Sequence[Service]) -> None:
    with ThreadPoolExecutor(len(services) or 1) as pool:
        for done in [pool.submit(keeper.stop, settings, service.name) for service in services]:
            done.result()


def _stop_applications(settings: Settings) -> None:
    """Stop the applications that have a lease, unless the database is gone."""
    with suppress(psycopg.OperationalError, psycopg.errors.UndefinedTable):
        for name in launcher.stop_all(settings):
            log.info("%s has stopped", name)


def status(settings: Settings) -> list[State]:
    return [_state(settings, service) for service in _wanted(settings)]


def _wanted(settings: Settings) -> list[Service]:
    """The services of this platform, without the optional services that its settings leave out."""
    return [service for service in SERVICES.values() if service.is_wanted(settings)]


def processes(settings: Settings) -> Iterator[psutil.Process]:
    """Every process of every service, for measuring memory and finding ports."""
    for state in status(settings):
        if state.pid is not None:
            yield from _family(state.pid)


def _bring_up(settings: Settings, service: Service, needed: "Iterable[Future[None]]") -> None:
    for done in needed:
        done.result()
    service.configure(settings)
    if _pid(settings, service.name) is None:
        for port in service.ports(settings):
            ports.require_free(port, service.name, f"choose another port in {settings.home / ENVIRONMENT_FILE}")
    keeper.start(settings, service.name)
    description = f"{service.name} (log: {log_file(settings, service.name)})"
    seconds = until(lambda: service.ready(settings), READY_SECONDS, description)
    service.prepare(settings)
    log.info("%s: ready at %s after %.1f s", service.name, service.address(settings), seconds)


def _prepare_running(settings: Settings, names: Iterable[str]) -> None:
    """Prepare services that already run. Set-up may have added passwords that they do not know yet."""
    for service in [SERVICES[name] for name in sorted(names)]:
        if _pid(settings, service.name) is None:
            continue
        try:
            service.ready(settings)
        except ServiceDown as down:
            log.warning("%s is not ready; run `truelog up` when it is: %s", service.name, down)
        else:
            service.prepare(settings)


def prepare_own_stores(settings: Settings) -> None:
    """Create what the platform needs in stores that others run, and register the event types.

    Raises:
        ServiceDown: a store does not answer, or refuses; the message says why.
        NotSetUp: the database server has roles or databases of other applications. Nothing has been changed.
    """
    for store in sorted(_STORES):
        try:
            SERVICES[store].ready(settings)
        except ServiceDown as down:
            raise ServiceDown(f"{store} at {SERVICES[store].address(settings)}: {down}; see `truelog doctor`") from down
    foreign_names.require_none(settings)
    for store in sorted(_STORES):
        SERVICES[store].prepare(settings)
    _register(settings, ())


def _register(settings: Settings, needed: "Iterable[Future[None]]") -> None:
    for done in needed:
        done.result()
    if settings.reads_events:
        foreign_events.permit(settings)
    refused: dict[str, str] = {}
    # A broker may not lead a new partition yet.
    until(lambda: refused.update(event_files.register_files(settings)), READY_SECONDS, "the event registry")
    for name, reason in refused.items():
        log.error("%s: its last version stays in force: %s", name, reason)
    reading.read_once(settings)  # before the API starts


def _state(settings: Settings, service: Service) -> State:
    address, pid = service.address(settings), _pid(settings, service.name)
    if pid is None:
        return State(service.name, "STOPPED", None, None, address)
    try:
        service.ready(settings)
    except ServiceDown as down:
        return State(service.name, "STARTING", pid, megabytes(_family(pid)), address, str(down))
    return State(service.name, "READY", pid, megabytes(_family(pid)), address)


def _pid(settings: Settings, name: str) -> int | None:
    try:
        return keeper.state(settings, name)["pid"] or None
    except (OSError, Fault):
        return None


def _family(pid: int) -> list[psutil.Process]:
    try:
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []
