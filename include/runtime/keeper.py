"""The service supervisor: starts the services, restarts dead services, and stops all services together.

The supervisor listens on a Unix socket that only its owner can open. Each service is a process group, so that no
process remains after the service is stopped.
"""

import os
import shlex
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from xmlrpc.client import Fault, ServerProxy

import psutil
from supervisor.xmlrpc import Faults, SupervisorTransport

from runtime import tether
from runtime.service import Service, log_file, private_folder
from truelog.support.errors import NotSetUp, ServiceDown
from truelog.support.files import write_private
from truelog.support.process import is_alive
from truelog.support.settings import Settings
from truelog.support.wait import until

START_SECONDS = 30
STOP_SECONDS = 120
LONGEST_SOCKET = 90  # a Unix socket path must be short, and the supervisor adds a suffix while it starts

DAEMON = """[unix_http_server]
file = {socket}
chmod = 0700

[supervisord]
logfile = {log}
pidfile = {folder}/supervisord.pid
directory = {folder}
umask = 077
nodaemon = true
silent = true
{user}

[rpcinterface:supervisor]
supervisor.rpcinterface_factory = supervisor.rpcinterface:make_main_rpcinterface
"""

PROGRAM = """
[program:{name}]
command = {command}
autostart = false
priority = {priority}
environment = {environment}
autorestart = true
startsecs = 1
startretries = 1000000
stopsignal = {signal}
stopwaitsecs = 30
stopasgroup = true
killasgroup = true
redirect_stderr = true
stdout_logfile = {log}
stdout_logfile_maxbytes = 20MB
stdout_logfile_backups = 2
"""


def supervise(settings: Settings, services: Iterable[Service], *, tethered: bool) -> list[str]:
    """Start the supervisor, or load changed configurations into a running supervisor. No service is started.

    Returns: the services that ran, and were stopped because their configurations have changed.
    """
    folder = private_folder(settings.home / "supervisor")
    private_folder(settings.home / "logs")
    write_private(folder / "supervisord.conf", _configuration(settings, services))
    if is_up(settings):
        return _load_changes(_calls(settings))
    _launch(settings, folder / "supervisord.conf", tethered)
    return []


def is_up(settings: Settings) -> bool:
    try:
        _calls(settings).getState()
    except OSError:
        return False
    return True


def start(settings: Settings, name: str) -> None:
    try:
        _calls(settings).startProcess(name, False)
    except Fault as fault:
        if fault.faultCode != Faults.ALREADY_STARTED:
            raise ServiceDown(f"{name}: {fault.faultString}; see {log_file(settings, name)}") from fault


def stop(settings: Settings, name: str) -> None:
    """Stop a service, unless it has stopped, or the settings ask for it only since the supervisor has read them."""
    try:
        _calls(settings).stopProcess(name, True)
    except Fault as fault:
        if fault.faultCode not in (Faults.NOT_RUNNING, Faults.BAD_NAME):
            raise


def state(settings: Settings, name: str) -> dict[str, Any]:
    """The supervisor's record of a service: `statename`, `pid`, `description` and so on."""
    info: dict[str, Any] = _calls(settings).getProcessInfo(name)
    return info


def shut_down(settings: Settings) -> None:
    """Stop the supervisor, and every service that is still running.

    If a service is still running, this takes a second for each service, whether running or not.
    """
    calls = _calls(settings)
    process = psutil.Process(calls.getPID())
    calls.shutdown()
    until(lambda: _require_ended(process), STOP_SECONDS, "the end of the supervisor")


def _require_ended(process: psutil.Process) -> None:
    if is_alive(process):
        raise ServiceDown("it is stopping its services")


def _calls(settings: Settings) -> Any:
    # One proxy per call, because threads cannot share a proxy.
    return ServerProxy(
        "http://supervisor", transport=SupervisorTransport(serverurl=f"unix://{_socket(settings)}")
    ).supervisor


def _socket(settings: Settings) -> Path:
    path = settings.home / "supervisor" / "supervisor.sock"
    if len(str(path)) > LONGEST_SOCKET:
        raise NotSetUp(f"{path} is too long for a socket: set TRUELOG_HOME to a shorter path")
    return path


def _configuration(settings: Settings, services: Iterable[Service]) -> str:
    daemon = DAEMON.format(
        socket=_socket(settings),
        log=log_file(settings, "supervisor"),
        folder=settings.home / "supervisor",
        user="user = root" if os.geteuid() == 0 else "",
    )
    return daemon + "".join(_program(settings, service) for service in services)


def _program(settings: Settings, service: Service) -> str:
    tied = [sys.executable, "-I", "-S", tether.__file__, service.stop_signal, service.user or "-"]
    # These variables are not in the supervisor's environment, because a running supervisor would not see a change.
    environment = ",".join(f'{name}="{value}"' for name, value in service.environment(settings).items())
    return PROGRAM.format(
        name=service.name,
        environment=environment.replace("%", "%%"),
        priority=200 if service.after else 100,  # higher priorities stop first
        command=shlex.join([*tied, *service.command(settings)]).replace("%", "%%"),
        signal=service.stop_signal,
        log=log_file(settings, service.name),
    )


def _launch(settings: Settings, configuration: Path, tethered: bool) -> None:
    command = [sys.executable, "-m", "supervisor.supervisord", "-c", str(configuration)]
    if tethered:
        command = [sys.executable, "-I", "-S", tether.__file__, "TERM", "-", *command]
    # The services inherit this environment, so it contains no secrets. Airflow finds spark-submit through PATH.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    environment = {"PATH": path, "HOME": str(settings.home), "TZ": "UTC"} | _java_options()
    daemon = subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        umask=0o077,  # the supervisor applies its own only as a daemon
    )

    def answers() -> None:
        if not is_up(settings):
            raise ServiceDown("it does not answer" if daemon.poll() is None else "it has exited")

    until(answers, START_SECONDS, f"supervisor (log: {log_file(settings, 'supervisor')})")


def _java_options() -> dict[str, str]:
    """Options that every JVM reads. They are passed on to Kafka, the object store and Spark."""
    return {name: value for name, value in os.environ.items() if name == "JAVA_TOOL_OPTIONS"}


def _load_changes(calls: Any) -> list[str]:
    """Load the changed configurations, and return the services that this has stopped."""
    [[added, changed, removed]] = calls.reloadConfig()
    stopped = []
    for name in changed + removed:
        if calls.stopProcessGroup(name, True) and name in changed:
            stopped.append(name)
        calls.removeProcessGroup(name)
    for name in added + changed:
        calls.addProcessGroup(name)
    return stopped
