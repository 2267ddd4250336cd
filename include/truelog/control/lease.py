"""Lease: lets at most one process run an application, and fences off every other process.

The holder has an advisory lock on a dedicated connection; PostgreSQL frees the lock as soon as the process dies. Each
holder has a higher epoch than its predecessor, and every merge checks the epoch in its own transaction, so a process
that was suspended, lost its lock and resumed cannot write. Such a process cannot block its successor either, because a
new holder first terminates its predecessor's sessions and so releases their locks.
"""

import os
import socket
import threading
from dataclasses import dataclass

import psutil
import psycopg

from truelog.storage.database import Connection, connect, session_name
from truelog.support.errors import Fenced
from truelog.support.settings import Settings

_BEAT_SECONDS = 1.0
LEASE_LOST = 75  # EX_TEMPFAIL: the exit code if another process is already running the application
_LOCK_LOST = 70  # EX_SOFTWARE: the process must not continue without its lock


@dataclass(frozen=True)
class Holder:
    """The application and the epoch of a lease."""

    application: str
    epoch: int


@dataclass(frozen=True)
class Lease:
    """A lease that this process holds."""

    holder: Holder
    connection: Connection
    released: threading.Event

    def release(self) -> None:
        """Release the lease, so that another process can take it."""
        self.released.set()
        self.connection.close()


def take_lease(settings: Settings, application: str) -> Lease:
    """Take the lease and hold it until it is released. If the process loses the connection, the process exits.

    Raises:
        Fenced: another process holds the lease.
    """
    connection = connect(settings, autocommit=True)
    locked = connection.execute("SELECT pg_try_advisory_lock(hashtextextended(%s, 0))", (application,)).fetchone()
    if locked != (True,):
        connection.close()
        raise Fenced(f"{application} is already running. Stop that process first, or let it continue.")
    _end_sessions(connection, application)
    row = connection.execute(
        "INSERT INTO truelog.lease AS l (application, epoch, host, pid, process_at) VALUES (%s, 1, %s, %s, %s) "
        "ON CONFLICT (application) DO UPDATE SET epoch = l.epoch + 1, host = excluded.host, pid = excluded.pid, "
        "process_at = excluded.process_at, taken_at = now(), batch_at = NULL, code = NULL RETURNING epoch",
        (application, socket.gethostname(), os.getpid(), psutil.Process().create_time()),
    ).fetchone()
    assert row is not None  # noqa: S101
    taken = Lease(Holder(application, int(str(row[0]))), connection, threading.Event())
    threading.Thread(target=_hold, args=(taken,), name="lease", daemon=True).start()
    return taken


def _end_sessions(connection: Connection, application: str) -> None:
    """Terminate the predecessor's sessions, because a process suspended during a statement would keep its locks."""
    connection.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE application_name = %s AND pid <> pg_backend_pid()",
        (session_name(application),),
    )


def require_lease(connection: Connection, holder: Holder) -> None:
    """Require that `holder` still has the lease, and block a change of holder until the caller's transaction ends.

    A unique index contains the epoch, so FOR KEY SHARE blocks a new epoch but not `record_batch`.
    """
    row = connection.execute(
        "SELECT FROM truelog.lease WHERE application = %s AND epoch = %s FOR KEY SHARE",
        (holder.application, holder.epoch),
    ).fetchone()
    if row is None:
        raise Fenced(f"{holder.application}: epoch {holder.epoch} is over: a successor is running. Exit this process.")


def record_code(connection: Connection, holder: Holder, code: str) -> None:
    """Record which code the holder is running."""
    connection.execute(
        "UPDATE truelog.lease SET code = %s WHERE application = %s AND epoch = %s",
        (code, holder.application, holder.epoch),
    )


def record_batch(connection: Connection, holder: Holder) -> None:
    """Record the end of a batch. The lease stores the time of the last batch, not of the last heartbeat."""
    connection.execute(
        "UPDATE truelog.lease SET batch_at = now() WHERE application = %s AND epoch = %s",
        (holder.application, holder.epoch),
    )


def _hold(lease: Lease) -> None:
    while not lease.released.wait(_BEAT_SECONDS):
        try:
            lease.connection.execute("SELECT 1")
        except psycopg.Error:
            if not lease.released.is_set():
                os._exit(_LOCK_LOST)
