"""Lease: lets at most one process run an application, and fences off every other process.

The holder has an advisory lock on a dedicated connection; PostgreSQL frees the lock as soon as the process dies. Each
holder has a higher epoch than its predecessor, and every merge checks the epoch in its own transaction, so a process
that was suspended, lost its lock and resumed cannot write. Such a process cannot block its successor either, because a
new holder first terminates its predecessor's sessions and so releases their locks.

If the database goes away, the holder tries for five minutes to take its lease again, and merges nothing meanwhile. It
may continue only if the lease's row still has its epoch and its incarnation, a random id, because a database that was
restored from a backup issues the same epochs again (`docs/decisions/029-outages.md`).
"""

import logging
import os
import socket
import threading
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass, field

import psutil
import psycopg

from truelog.storage.database import Connection, connect, read_value, session_name
from truelog.storage.locks import Locks
from truelog.support.errors import Fenced, LeaseInterrupted
from truelog.support.process import seconds_from_boot
from truelog.support.settings import Settings

_BEAT_SECONDS = 1.0
RETAKE_SECONDS = 300.0  # how long an application waits for services: two minutes, and then until they have started
_RETRY_SECONDS = 0.25
LEASE_LOST = 75  # EX_TEMPFAIL: the exit code if another process is already running the application
COMMAND = "command"  # the code of a lease that a command such as `truelog archive adopt` holds
_LOCK_LOST = 70  # EX_SOFTWARE: the process must not continue without its lock


log = logging.getLogger("truelog.lease")


@dataclass(frozen=True)
class Holder:
    """The application, the epoch and the incarnation of a lease. `held` is clear while the holder lacks its lock."""

    application: str
    epoch: int
    incarnation: str | None = None
    held: threading.Event = field(default_factory=threading.Event, compare=False, repr=False)


@dataclass
class Lease:
    """A lease that this process holds, and how often the process has lost its lock's connection."""

    settings: Settings
    holder: Holder
    connection: Connection
    session: tuple[object, ...]  # the lock's PostgreSQL process: its pid and its start
    released: threading.Event = field(default_factory=threading.Event)
    interruptions: int = 0
    _using: threading.Lock = field(default_factory=threading.Lock, repr=False)  # libpq crashes if a used one is closed

    def release(self) -> None:
        """Release the lease, so that another process can take it at once.

        PostgreSQL also ends a closed session's lock, but only when its process notices that the session is closed.
        """
        self.released.set()
        with self._using:
            with suppress(psycopg.Error):  # the connection may be lost, and with it the lock
                self.connection.execute("SELECT pg_advisory_unlock_all()")
            self.connection.close()

    def outlast(self, interruptions: int, stop: threading.Event) -> bool:
        """After a failure, wait until the lease is held. True if it has been interrupted more often than before."""
        deadline = time.monotonic() + 3 * _BEAT_SECONDS  # the lock's connection may notice the outage last
        while self.interruptions == interruptions and time.monotonic() < deadline:
            self.released.wait(_RETRY_SECONDS)
        while self.interruptions > interruptions and not self.holder.held.wait(_RETRY_SECONDS):
            if stop.is_set():
                return False
        return self.interruptions > interruptions

    def hold(self) -> None:
        """Watch the lock's connection until the lease is released. If the lease cannot be taken again, exit."""
        while not self.released.wait(_BEAT_SECONDS):
            try:
                with self._using:
                    self.connection.execute("SELECT 1")
            except psycopg.Error as error:
                if self.released.is_set():
                    return
                log.warning("%s has lost its lock: %s", self.holder.application, error)
                self._retake_or_exit()

    def _retake_or_exit(self) -> None:
        self.interruptions += 1
        self.holder.held.clear()
        deadline = time.monotonic() + RETAKE_SECONDS
        while not self.released.wait(_RETRY_SECONDS):
            try:
                if self.retake():
                    self.holder.held.set()
                    log.warning("%s has taken its lease again", self.holder.application)
                    return
            except psycopg.Error as error:
                log.info("%s is waiting for the database: %s", self.holder.application, error)
            except Fenced as error:
                log.error("%s", error)
                os._exit(LEASE_LOST)
            if time.monotonic() > deadline:
                os._exit(_LOCK_LOST)

    def retake(self) -> bool:
        """Take the lock again on a new connection; False if the old session, or a new process, still has the lock.

        Raises:
            Fenced: the lease has had another holder.
        """
        connection = connect(self.settings, autocommit=True)
        try:
            _require_row(connection, self.holder)
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE (pid, backend_start) = (%s, %s)",
                self.session,
            )
            if not _lock(connection, self.holder.application):
                connection.close()
                return False
            _require_row(connection, self.holder)  # no successor can take the lease from here on
            taken = "UPDATE truelog.lease SET taken_at = now() WHERE application = %s"  # it could not work meanwhile
            connection.execute(taken, (self.holder.application,))
        except BaseException:
            connection.close()
            raise
        with self._using:
            self.connection.close()
            self.connection, self.session = connection, _session(connection)
        return True


def take_lease(settings: Settings, application: str, *, code: str | None = None) -> Lease:
    """Take the lease and hold it until it is released. If the process loses the connection, the process exits.

    A command passes COMMAND as its code, so that its process is not taken for the application and stopped.

    Raises:
        Fenced: another process holds the lease.
    """
    connection = connect(settings, autocommit=True)
    if not _lock(connection, application):
        connection.close()
        raise Fenced(f"{application} is already running. Stop that process first, or let it continue.")
    _end_sessions(connection, application)
    incarnation = str(uuid.uuid4())
    epoch = read_value(
        connection,
        "INSERT INTO truelog.lease AS l (application, epoch, incarnation, host, pid, process_at, code) "
        "VALUES (%s, 1, %s, %s, %s, %s, %s) "
        "ON CONFLICT (application) DO UPDATE SET epoch = l.epoch + 1, incarnation = excluded.incarnation, "
        "host = excluded.host, pid = excluded.pid, "
        "process_at = excluded.process_at, taken_at = now(), batch_at = NULL, code = excluded.code RETURNING epoch",
        (application, incarnation, socket.gethostname(), os.getpid(), seconds_from_boot(psutil.Process()), code),
    )
    taken = Lease(settings, Holder(application, epoch, incarnation), connection, _session(connection))
    taken.holder.held.set()
    threading.Thread(target=taken.hold, name="lease", daemon=True).start()
    return taken


def _lock(connection: Connection, application: str) -> bool:
    return bool(read_value(connection, f"SELECT pg_try_advisory_lock({Locks.APPLICATION})", (application,)))


def _session(connection: Connection) -> tuple[object, ...]:
    query = "SELECT pid, backend_start FROM pg_stat_activity WHERE pid = pg_backend_pid()"
    [found] = connection.execute(query).fetchall()
    return found


def _end_sessions(connection: Connection, application: str) -> None:
    """Terminate the former holder's sessions, because a process suspended during a statement would keep its locks.

    An application of the same name may use another database of the server.
    """
    connection.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE datname = current_database() AND application_name = %s AND pid <> pg_backend_pid()",
        (session_name(application),),
    )


def fence(connection: Connection, application: str) -> None:
    """Take the lease from its holder, wherever the holder runs. It cannot take its lease again, so it exits.

    1. End its other sessions, because a merge in progress would block the new incarnation.
    2. Give the lease a new incarnation. The epoch stays, so that only a new process increases it.
    3. End the session that holds its lock, last: until the incarnation is new, it could take its lock again.
    """
    _end_sessions(connection, application)  # 1
    renew = "UPDATE truelog.lease SET incarnation = gen_random_uuid() WHERE application = %s"
    connection.execute(renew, (application,))  # 2
    connection.execute(_END_LOCK_SESSION, (application,))  # 3


_END_LOCK_SESSION = f"""
    SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1 AND granted
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
        AND (classid::bigint << 32) | objid::bigint = {Locks.APPLICATION}
"""  # noqa: S608  constants


def require_lease(connection: Connection, holder: Holder) -> None:
    """Require that `holder` still has the lease, and block a change of holder until the caller's transaction ends.

    A unique index contains the epoch, so FOR KEY SHARE blocks a new epoch but not `record_batch`.

    Raises:
        Fenced: the lease has had another holder.
        LeaseInterrupted: the holder has lost its lock and may take it again.
    """
    if not holder.held.is_set():
        raise LeaseInterrupted(f"{holder.application} has lost its lock and is trying to take it again.")
    _require_row(connection, holder)


def _require_row(connection: Connection, holder: Holder) -> None:
    row = connection.execute(
        "SELECT FROM truelog.lease WHERE (application, epoch) = (%s, %s) AND incarnation IS NOT DISTINCT FROM %s "
        "FOR KEY SHARE",
        (holder.application, holder.epoch, holder.incarnation),
    ).fetchone()
    if row is None:
        raise Fenced(f"{holder.application}: epoch {holder.epoch} is over: a successor is running. Exit this process.")


def record_code(connection: Connection, holder: Holder, code: str) -> None:
    """Record which code the holder is running.

    Raises: the errors of `require_lease`.
    """
    require_lease(connection, holder)
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
