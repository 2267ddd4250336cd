"""Lease: at most one process runs an application, and the others know that they do not.

An advisory lock on a connection of its own says who runs; PostgreSQL frees it at once when that process dies. Each
holder has a greater epoch than the one before, and every merge checks it in its own transaction: a process that was
suspended, lost its lock and woke up again cannot write. Nor can it stand in the way: whoever takes the lease first
ends the sessions that its predecessor left, with whatever they had locked.
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
LEASE_LOST = 75  # EX_TEMPFAIL: the exit code of an application that found another process running it
_LOCK_LOST = 70  # EX_SOFTWARE: the process must not go on without its lock


@dataclass(frozen=True)
class Holder:
    """Who holds an application's lease, at which epoch."""

    application: str
    epoch: int


@dataclass(frozen=True)
class Lease:
    """The lease while it is held."""

    holder: Holder
    connection: Connection
    released: threading.Event

    def release(self) -> None:
        """Let a successor in."""
        self.released.set()
        self.connection.close()


def take_lease(settings: Settings, application: str) -> Lease:
    """Take the lease and hold it until it is released; a lost connection ends the process.

    Raises:
        Fenced: another process holds it.
    """
    connection = connect(settings, autocommit=True)
    got = connection.execute("SELECT pg_try_advisory_lock(hashtextextended(%s, 0))", (application,)).fetchone()
    if got != (True,):
        connection.close()
        raise Fenced(f"{application} runs already. Stop that process first, or let it go on.")
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
    """A process suspended in the middle of a statement would keep its locks for as long as it is suspended."""
    connection.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE application_name = %s AND pid <> pg_backend_pid()",
        (session_name(application),),
    )


def require_lease(connection: Connection, holder: Holder) -> None:
    """Within a transaction: the lease is still this holder's, and stays so until the transaction ends."""
    found = connection.execute(
        "SELECT FROM truelog.lease WHERE application = %s AND epoch = %s FOR SHARE",
        (holder.application, holder.epoch),
    ).fetchone()
    if found is None:
        raise Fenced(f"{holder.application}: epoch {holder.epoch} is over, a successor runs. This process must end.")


def record_code(connection: Connection, holder: Holder, code: str) -> None:
    """Note which code the holder runs."""
    connection.execute(
        "UPDATE truelog.lease SET code = %s WHERE application = %s AND epoch = %s",
        (code, holder.application, holder.epoch),
    )


def record_batch(connection: Connection, holder: Holder) -> None:
    """Note that a batch ended: the lease tells the time of the last batch, not of the last heartbeat."""
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
