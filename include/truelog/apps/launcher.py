"""Starts and stops applications and brings them to their desired states.

An application has its own process session, which contains the `spark-submit` JVM and the Python process that the JVM
starts. The Python process holds the lease. The application survives the process that started it. Stopping the
application leaves no process behind: if the JVM or the Python process dies, the other exits too.
"""

import logging
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from truelog.apps import launch_history
from truelog.apps.liveness import diagnose
from truelog.control import application, lease
from truelog.control.application import ARCHIVE, ApplicationStatus, Diagnosis
from truelog.spark import scratch
from truelog.spark.submit import SPARK, UMASK, job_environment, properties_file, submit_conf
from truelog.storage import audit_trail
from truelog.storage.audit_trail import OperationKind
from truelog.storage.database import Connection, connect
from truelog.storage.locks import Locks
from truelog.support.errors import CrashLoop, ServiceDown
from truelog.support.process import is_alive, seconds_from_boot
from truelog.support.settings import PROJECT, Settings
from truelog.support.wait import until

if TYPE_CHECKING:
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

BY_REQUEST = "by hand"
_HELD = "held by a command"
_DEATHS = (Diagnosis.DOWN, Diagnosis.HUNG)
_LEASE_SECONDS = 120  # spark-submit may need this long to reach an application's first line on a busy machine
_SCRIPTS = [str(PROJECT / "spark_apps" / each) for each in ("archive.py", "stream.py")]
_ARCHIVE_SCRIPT, _STREAM_SCRIPT = _SCRIPTS
_SUBMIT = "org.apache.spark.deploy.SparkSubmit"  # the class that starts the Python process
_TAIL = 30  # lines at the end of a log; they show why an application died

_ERROR = re.compile(r"(?:[\w.]+\.)?\w*(?:Error|Exception|Down|Refused|Failed|Lost)\b.*: ")  # the end of a traceback
_MAX_ERROR = 500  # characters

log = logging.getLogger("truelog.launcher")


def ensure_desired_state(settings: Settings, name: str, request: str | None = None) -> str:
    """Bring the application to its desired state and return what was wrong and what was done.

    A request restarts a running application only once, however often the same request is repeated.

    Raises:
        CrashLoop: the application exited or hung too often recently, so its start is delayed.
    """
    with _exclusive(settings, name) as connection:
        application.declare(connection, [name])
        status = application.load_status(connection, name)
        if status.held_by_command:
            return _HELD
        found = diagnose(settings, status, datetime.now(UTC))
        request = status.wish or request
        requested = (
            request is not None
            and status.desired == application.RUNNING
            and not _is_fulfilled(connection, name, request)
        )
        if found is None and not requested:
            return "healthy" if status.alive else application.STOPPED
        if found is Diagnosis.NO_INPUT and not requested:
            return f"{found}: not restarted. No ticks are arriving, or Kafka is down; a new process would not help"
        if found in _DEATHS and not requested:
            _require_no_crash_loop(settings, connection, status, found)
        if status.alive:
            grace = 0 if found is Diagnosis.HUNG else settings.stop_seconds
            _stop(connection, status, grace)
        if found is Diagnosis.STOP:
            return f"{found}: stopped"
        reason = BY_REQUEST if requested else str(found)
        _record_launch(connection, name, reason, request)
        epoch = _start(settings, connection, name, status.epoch or 0)
        return f"{reason}: started, epoch {epoch}"


def ensure_all_desired_states(settings: Settings, known: list[str], watched: list[str]) -> dict[str, str]:
    """Ensure the watched applications, stop the unknown applications, and return what was done with each application.

    Raises: the first error, after all applications have been handled. A delayed start is not an error.
    """
    done, failed = {}, list[Exception]()
    for name in watched:
        try:
            done[name] = ensure_desired_state(settings, name)
        except Exception as error:
            log.exception("%s", name)
            done[name] = str(error)
            if not (isinstance(error, CrashLoop) and error.paused_until):
                failed.append(error)
    with connect(settings, autocommit=True) as connection:
        unknown = application.unknown_running(connection, known)
    for name in unknown:
        done[name] = "stopped: no view is assigned to it" if stop(settings, name) else _HELD
    if failed:
        raise failed[0]
    return done


def stop(settings: Settings, name: str) -> bool:
    """Stop the application, whatever its desired state. If it does not finish its current batch in time, kill it.

    Return False if a command holds its lease, which this does not stop.
    """
    with _exclusive(settings, name) as connection:
        status = application.load_status(connection, name)
        if status.alive and not status.held_by_command:
            _stop(connection, status, settings.stop_seconds)
        return not status.held_by_command


def stop_all(settings: Settings) -> list[str]:
    """Stop all running applications and return their names."""
    with connect(settings, autocommit=True) as connection:
        running = application.unknown_running(connection, ())
    return [name for name in running if stop(settings, name)]


def stop_here(settings: Settings) -> list[str]:
    """Stop the applications of this home on this machine, also if the database is gone, and return their names."""
    found = [(name, each) for each in psutil.process_iter() if (name := _application_of(settings, each)) is not None]
    found.sort(key=lambda each: -each[1].create_time())  # Python before its JVM, which exits with it
    for name, process in found:
        with suppress(psutil.NoSuchProcess, ProcessLookupError):
            _end(process, _family(process), settings.stop_seconds, name)
    return sorted({name for name, _ in found})


def _application_of(settings: Settings, process: psutil.Process) -> str | None:
    """The application that this process runs, as Python or before it as `spark-submit`, if it is one of this home."""
    with suppress(psutil.Error):
        line = process.cmdline()
        at = next((n for n, word in enumerate(line) if word in _SCRIPTS), 1) if _SUBMIT in line else 1
        if line[at : at + 1] == [_ARCHIVE_SCRIPT] or line[at : at + 2] == [_STREAM_SCRIPT, "--application"]:
            name = ARCHIVE if line[at] == _ARCHIVE_SCRIPT else line[-1]
            return name if process.environ().get("TRUELOG_HOME") == str(settings.home) else None
    return None


def _hook(settings: Settings, name: str, folder: Path, *arguments: str) -> "SparkSubmitHook":
    """The Spark hook with Truelog's Spark configuration, for the connection that contains the master's address.

    If there were no such connection, the hook would silently use YARN, so the connection is required here first.
    """
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

    SparkSubmitHook.get_connection(SPARK)
    return SparkSubmitHook(
        conf=submit_conf(settings, folder),
        properties_file=str(properties_file(settings)),
        conn_id=SPARK,
        name=f"truelog {name}",
        env_vars=job_environment(settings, folder),
        application_args=list(arguments),
    )


def log_path(settings: Settings, name: str) -> Path:
    return settings.home / "logs" / f"{name}.log"


def log_tail(settings: Settings, name: str) -> str:
    """The end of the application's log."""
    with suppress(FileNotFoundError):
        return "\n".join(log_path(settings, name).read_text(errors="replace").splitlines()[-_TAIL:])
    return "no log"


def last_error(settings: Settings, name: str) -> str:
    """The last line of the application's log that names an error, or else its last line. Empty if there is no log."""
    if not log_path(settings, name).exists():
        return ""
    lines = [line.strip() for line in log_tail(settings, name).splitlines() if line.strip()]
    return next((line for line in reversed(lines) if _ERROR.match(line)), lines[-1] if lines else "")[:_MAX_ERROR]


def request_start(settings: Settings, name: str, doer: str) -> None:
    """Set the desired state to running. If the application RESTS after repeated failures, its rest ends at once."""
    with connect(settings) as connection:
        application.set_desired(connection, name, application.RUNNING, doer)
    if next_try(settings, name) is not None:
        with connect(settings) as connection:
            application.request_restart(connection, name, doer)


def next_try(settings: Settings, name: str) -> datetime | None:
    """When an application that RESTS is started again, or None if it does not rest."""
    with connect(settings) as connection:
        status, launch = application.load_status(connection, name), launch_history.launches(connection, [name])[name]
    now = datetime.now(UTC)
    return launch_history.resting_until(settings, status, diagnose(settings, status, now), launch, now)


def application_processes(status: ApplicationStatus) -> list[psutil.Process]:
    """The application's processes on this machine: its session, or else its Python process with all descendants.

    The process group is not enough, because Spark's Python workers form a group of their own.
    """
    process = _process(status)
    return [] if process is None else _family(process)


def _family(process: psutil.Process) -> list[psutil.Process]:
    session = os.getsid(process.pid)
    if session != os.getpgid(process.pid):  # started from a shell: the shell's other jobs are not the application's
        return [process, *process.children(recursive=True)]
    return [each for each in psutil.process_iter() if _session_of(each) == session]


@contextmanager
def _exclusive(settings: Settings, name: str) -> Iterator[Connection]:
    """A connection that holds a lock, so that only one process at a time starts or stops the application."""
    with connect(settings, autocommit=True) as connection:
        connection.execute(f"SELECT pg_advisory_lock({Locks.LAUNCH})", (name,))
        yield connection


def _start(settings: Settings, connection: Connection, name: str, epoch: int) -> int:
    """Start the application, wait until it holds the lease, and return its epoch."""
    folder = scratch.application_folder(settings, name)
    environment = job_environment(settings, folder)
    command = _command(settings, name, folder, environment.get("PATH", os.defpath))
    with _fresh_log(settings, name).open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=settings.home,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            umask=UMASK,
        )

    def require_lease() -> None:
        status = application.load_status(connection, name)
        if not (status.alive and (status.epoch or 0) > epoch):
            if process.poll() is not None:
                raise _crash_loop(settings, name, f"exited with code {process.returncode} right after its start")
            raise ServiceDown("it does not hold its lease yet")

    seconds = until(require_lease, _LEASE_SECONDS, name)
    log.info("%s: started, got its lease after %.1f s", name, seconds)
    return application.load_status(connection, name).epoch or 0


def _command(settings: Settings, name: str, folder: Path, path: str) -> list[str]:
    script, arguments = (_ARCHIVE_SCRIPT, []) if name == ARCHIVE else (_STREAM_SCRIPT, ["--application", name])
    command: list[str] = _hook(settings, name, folder, *arguments)._build_spark_submit_command(script)
    search_path = os.pathsep.join([str(Path(sys.executable).parent), path])
    command[0] = shutil.which(command[0], path=search_path) or command[0]
    return command


def _stop(connection: Connection, status: ApplicationStatus, grace: float) -> None:
    """Stop the application.

    1. Terminate its Python process, which exits after the current batch, and spark-submit exits with it.
    2. Kill its remaining processes.
    3. If its process cannot be seen here, as on another machine, take its lease, so that it exits on its own.
    """
    process = _process(status)
    processes = [] if process is None else _family(process)
    if process is not None:
        _end(process, processes, grace, status.application)  # 1 and 2

    def require_stopped() -> None:
        _require_ended(processes)
        if application.load_status(connection, status.application).alive:
            lease.fence(connection, status.application)  # 3
            raise ServiceDown("a database session still holds its lock")

    until(require_stopped, 10, f"the end of {status.application}")


def _end(process: psutil.Process, family: list[psutil.Process], grace: float, name: str) -> None:
    """Terminate the Python process, unless there is no time for that, and kill what is left of its family."""
    if grace:
        with suppress(psutil.NoSuchProcess):
            process.terminate()
        with suppress(ServiceDown):
            until(lambda: _require_ended(family), grace, name)
    for each in filter(is_alive, family):
        with suppress(psutil.NoSuchProcess):
            each.kill()


def _process(status: ApplicationStatus) -> psutil.Process | None:
    """Its Python process on this machine, or None; the start time excludes a later process with the same pid."""
    if status.pid is None or status.process_at is None or status.host != socket.gethostname():
        return None
    try:
        process = psutil.Process(status.pid)
        return process if abs(seconds_from_boot(process) - status.process_at) < 1 else None
    except psutil.NoSuchProcess:
        return None


def _require_ended(processes: list[psutil.Process]) -> None:
    left = [process.pid for process in processes if is_alive(process)]
    if left:
        raise ServiceDown(f"its processes are still running: {left}")


def _session_of(process: psutil.Process) -> int | None:
    try:
        return os.getsid(process.pid)
    except ProcessLookupError:
        return None


def _fresh_log(settings: Settings, name: str) -> Path:
    """Create an empty log, and rename the previous run's log to `.log.1`."""
    path = log_path(settings, name)
    path.parent.mkdir(mode=0o700, exist_ok=True)
    if path.exists():
        path.replace(path.with_suffix(".log.1"))
    path.touch(mode=0o600)
    return path


def _is_fulfilled(connection: Connection, name: str, request: str) -> bool:
    query = "SELECT FROM truelog.launch WHERE application = %s AND wish = %s"
    return connection.execute(query, (name, request)).fetchone() is not None


def _record_launch(connection: Connection, name: str, reason: str, request: str | None) -> None:
    connection.execute(
        "INSERT INTO truelog.launch (application, reason, wish) VALUES (%s, %s, %s)", (name, reason, request)
    )
    about = f"{reason}: {request}" if request else reason
    audit_trail.record_operation(connection, OperationKind.LAUNCH, name, audit_trail.AIRFLOW, about)


def _require_no_crash_loop(
    settings: Settings, connection: Connection, status: ApplicationStatus, found: Diagnosis
) -> None:
    """Refuse to restart an application that was started too often recently, because another start would not help."""
    name, now = status.application, datetime.now(UTC)
    launch = launch_history.launches(connection, [name])[name]
    if again := launch_history.resting_until(settings, status, found, launch, now):
        raise _crash_loop(settings, name, f"is RESTING: it exited or hung {len(launch.died_at)} times in 24 h", again)


def _crash_loop(settings: Settings, name: str, problem: str, again: datetime | None = None) -> CrashLoop:
    retry = f" Next try at {again:%H:%M:%S} UTC, or when its task is cleared." if again else ""
    end = f"The end of {log_path(settings, name)}:\n{log_tail(settings, name)}"
    return CrashLoop(f"{name} {problem}.{retry}\n{end}", again)
