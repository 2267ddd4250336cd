"""The launcher: applications started, stopped, and brought to their desired state.

An application is a session of its own: `spark-submit`'s JVM, and the Python that it runs, which holds the lease.
Nothing of what started it may end it, and nothing of it is left when it is stopped: where one of the two dies, the
other follows.
"""

import logging
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from truelog.apps.liveness import diagnose
from truelog.control import application
from truelog.control.application import ARCHIVE, Diagnosis, Status
from truelog.spark.submit import SPARK, job_environment, submit_conf
from truelog.storage import audit_trail
from truelog.storage.audit_trail import OperationKind
from truelog.storage.database import Connection, connect
from truelog.support.errors import CrashLoop, ServiceDown
from truelog.support.process import is_alive
from truelog.support.settings import PROJECT, Settings
from truelog.support.wait import until

if TYPE_CHECKING:
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

BY_REQUEST = "by hand"
_DEATHS = (Diagnosis.DOWN, Diagnosis.HUNG)
_LEASE_SECONDS = 120  # that spark-submit may take to the first line of an application, on a busy machine
_TAIL = 30  # lines of a log that tell why an application died

log = logging.getLogger("truelog.launcher")


def ensure(settings: Settings, name: str, wish: str | None = None) -> str:
    """Bring the application to its desired state; what was found, and what was done.

    A wish has a running application started anew, once however often it is repeated.

    Raises:
        CrashLoop: it ended or hung too often of late, and rests.
    """
    with _alone(settings, name) as connection:
        application.declare(connection, [name])
        status = application.status(connection, name)
        found = diagnose(settings, status, datetime.now(UTC))
        wish = status.wish or wish
        wished = wish is not None and status.desired == application.RUNNING and not _granted(connection, name, wish)
        if found is None and not wished:
            return "healthy" if status.alive else application.STOPPED
        if found is Diagnosis.NO_INPUT and not wished:
            return f"{found}: it has nothing to read, no ticks come or Kafka is away; left alone until then"
        if found in _DEATHS and not wished:
            _require_rest(settings, connection, status, found)
        if status.alive:
            grace = 0 if found is Diagnosis.HUNG else settings.stop_seconds
            _stop(connection, status, grace)
        if found is Diagnosis.STOP:
            return f"{found}: stopped"
        reason = BY_REQUEST if wished else str(found)
        _note(connection, name, reason, wish)
        epoch = _start(settings, connection, name, status.epoch or 0)
        return f"{reason}: started, epoch {epoch}"


def ensure_all(settings: Settings, known: list[str], watched: list[str]) -> dict[str, str]:
    """Ensure those that are watched, and end those that nobody knows any more; what was done with each.

    Raises: the first error, where one of them could not be seen to; the others were. One that rests is no error.
    """
    done, failed = {}, list[Exception]()
    for name in watched:
        try:
            done[name] = ensure(settings, name)
        except Exception as error:
            log.exception("%s", name)
            done[name] = str(error)
            if not (isinstance(error, CrashLoop) and error.paused_until):
                failed.append(error)
    with connect(settings, autocommit=True) as connection:
        strangers = application.unknown_running(connection, known)
    for name in strangers:
        stop(settings, name)
        done[name] = "stopped: no view is given to it"
    if failed:
        raise failed[0]
    return done


def stop(settings: Settings, name: str) -> None:
    """End the application, whatever is desired: after its batch under way, or by force where that takes too long."""
    with _alone(settings, name) as connection:
        status = application.status(connection, name)
        if status.alive:
            _stop(connection, status, settings.stop_seconds)


def stop_all(settings: Settings) -> list[str]:
    """End every application that runs; which these were."""
    with connect(settings, autocommit=True) as connection:
        running = application.unknown_running(connection, ())
    for name in running:
        stop(settings, name)
    return running


def _hook(settings: Settings, name: str, *arguments: str) -> "SparkSubmitHook":
    """The Spark provider's hook on the connection that names the master, with what every Spark process is given.

    It looks the connection up itself, but goes on with YARN where there is none: so it is asked for here first.
    """
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

    SparkSubmitHook.get_connection(SPARK)
    return SparkSubmitHook(
        conf=submit_conf(settings) | {"spark.local.dir": str(_empty(settings.home / "scratch" / f"{name}.spark"))},
        conn_id=SPARK,
        name=f"truelog {name}",
        env_vars=job_environment(settings),
        application_args=list(arguments),
    )


def log_path(settings: Settings, name: str) -> Path:
    return settings.home / "logs" / f"{name}.log"


def log_tail(settings: Settings, name: str) -> str:
    """The end of the application's log."""
    with suppress(FileNotFoundError):
        return "\n".join(log_path(settings, name).read_text(errors="replace").splitlines()[-_TAIL:])
    return "it has no log"


def application_processes(status: Status) -> list[psutil.Process]:
    """The application's processes on this machine: its session, or where it has none, those below its Python.

    Not its group alone: Spark's Python workers make one of their own.
    """
    process = _process(status)
    if process is None:
        return []
    session = os.getsid(process.pid)
    if session != os.getpgid(process.pid):  # started from somebody's shell, whose other jobs are not ours
        return [process, *process.children(recursive=True)]
    return [each for each in psutil.process_iter() if _session_of(each) == session]


@contextmanager
def _alone(settings: Settings, name: str) -> Iterator[Connection]:
    """One at a time works on an application."""
    with connect(settings, autocommit=True) as connection:
        connection.execute("SELECT pg_advisory_lock(hashtextextended('launch ' || %s, 0))", (name,))
        yield connection


def _start(settings: Settings, connection: Connection, name: str, epoch: int) -> int:
    """Start it, and wait until it holds the lease; at which epoch."""
    environment = job_environment(settings)
    command = _command(settings, name, environment.get("PATH", os.defpath))
    with _fresh_log(settings, name).open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=settings.home,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def held() -> None:
        status = application.status(connection, name)
        if not (status.alive and (status.epoch or 0) > epoch):
            if process.poll() is not None:
                raise _ended(settings, name, f"ended with {process.returncode} as soon as it was started")
            raise ServiceDown("it does not hold its lease yet")

    seconds = until(held, _LEASE_SECONDS, name)
    log.info("%s: started, holds its lease after %.1f s", name, seconds)
    return application.status(connection, name).epoch or 0


def _command(settings: Settings, name: str, path: str) -> list[str]:
    script, arguments = ("archive.py", []) if name == ARCHIVE else ("stream.py", ["--application", name])
    command: list[str] = _hook(settings, name, *arguments)._build_spark_submit_command(
        str(PROJECT / "spark_apps" / script)
    )
    places = os.pathsep.join([str(Path(sys.executable).parent), path])
    command[0] = shutil.which(command[0], path=places) or command[0]
    return command


def _stop(connection: Connection, status: Status, grace: float) -> None:
    """1. Ask its Python, which ends after the batch under way, and spark-submit with it.
    2. Kill what is left of it.
    3. Where its process is not on this machine, take its lock away: it ends itself then.
    """
    processes = application_processes(status)
    if processes and grace:
        with suppress(psutil.NoSuchProcess):
            psutil.Process(status.pid).terminate()  # 1
        with suppress(ServiceDown):
            until(lambda: _require_ended(processes), grace, status.application)
    for process in filter(is_alive, processes):
        with suppress(psutil.NoSuchProcess):
            process.kill()  # 2

    def gone() -> None:
        _require_ended(processes)
        if application.status(connection, status.application).alive:
            connection.execute(_TAKE_AWAY, (status.application,))  # 3
            raise ServiceDown("somebody holds its lock still")

    until(gone, 10, f"the end of {status.application}")


_TAKE_AWAY = """
    SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1 AND granted
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
        AND (classid::bigint << 32) | objid::bigint = hashtextextended(%s, 0)
"""


def _process(status: Status) -> psutil.Process | None:
    """Its Python, where it runs on this machine: a process that has got the pid of a dead one is another."""
    if status.pid is None or status.process_at is None or status.host != socket.gethostname():
        return None
    try:
        process = psutil.Process(status.pid)
        return process if abs(process.create_time() - status.process_at) < 1 else None
    except psutil.NoSuchProcess:
        return None


def _require_ended(processes: list[psutil.Process]) -> None:
    left = [process.pid for process in processes if is_alive(process)]
    if left:
        raise ServiceDown(f"its processes live: {left}")


def _session_of(process: psutil.Process) -> int | None:
    try:
        return os.getsid(process.pid)
    except ProcessLookupError:
        return None


def _fresh_log(settings: Settings, name: str) -> Path:
    """The log of the run before stays beside it."""
    path = log_path(settings, name)
    path.parent.mkdir(mode=0o700, exist_ok=True)
    if path.exists():
        path.replace(path.with_suffix(".log.1"))
    path.touch(mode=0o600)
    return path


def _empty(folder: Path) -> Path:
    """Spark copies its jars into a folder that one that is killed leaves behind."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700, parents=True)
    return folder


def _granted(connection: Connection, name: str, wish: str) -> bool:
    asked = "SELECT FROM truelog.launch WHERE application = %s AND wish = %s"
    return connection.execute(asked, (name, wish)).fetchone() is not None


def _note(connection: Connection, name: str, reason: str, wish: str | None) -> None:
    connection.execute(
        "INSERT INTO truelog.launch (application, reason, wish) VALUES (%s, %s, %s)", (name, reason, wish)
    )
    about = f"{reason}: {wish}" if wish else reason
    audit_trail.record_operation(connection, OperationKind.LAUNCH, name, audit_trail.AIRFLOW, about)


def _require_rest(settings: Settings, connection: Connection, status: Status, found: Diagnosis) -> None:
    """One that was started so often of late that another start would help nobody is left alone for a while."""
    name, seconds = status.application, settings.deaths_seconds
    if found is Diagnosis.HUNG:  # as often, though each time it took that long to be seen
        seconds += settings.deaths_allowed * application.silence_limits(settings, name).for_status(status).total_seconds()
    rows: list[tuple[Any, ...]] = connection.execute(
        "SELECT launched_at FROM truelog.launch WHERE application = %s AND reason = ANY(%s) "
        "AND launched_at > now() - make_interval(secs => %s) ORDER BY launched_at",
        (name, list(application.DEATH_REASONS), seconds),
    ).fetchall()
    if len(rows) >= settings.deaths_allowed:
        again = rows[-settings.deaths_allowed][0] + timedelta(seconds=seconds)
        raise _ended(settings, name, f"ended or hung {len(rows)} times within {seconds:.0f} s", again)


def _ended(settings: Settings, name: str, how: str, again: datetime | None = None) -> CrashLoop:
    words = f"It is tried again at {again:%H:%M:%S} UTC, or at once where its task is cleared." if again else ""
    return CrashLoop(f"{name} {how}. {words}\n{log_path(settings, name)} ends:\n{log_tail(settings, name)}", again)
