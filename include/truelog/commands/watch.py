"""The watch: one thread of a collector, which waits until accepted events are in the log."""

import logging
import uuid
from concurrent.futures import Future
from threading import Event, Lock

import psycopg

from truelog.commands import answers
from truelog.commands.answers import Said
from truelog.storage.database import Connection, connect
from truelog.storage.kept_sessions import kept
from truelog.support.settings import Settings

log = logging.getLogger(__name__)

_IDLE_SECONDS = 0.5
_LOOK_SECONDS = 0.1  # between two looks if no notification comes
_RETRY_SECONDS = 0.5  # after an error of the database


class Watch:
    """Waits for what is said about accepted commands."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = Lock()
        self._waiting: dict[uuid.UUID, list[Future[Said]]] = {}
        self._some = Event()
        self._never = Event()
        self._connection: Connection | None = None

    def submit(self, receipt: uuid.UUID) -> "Future[Said]":
        """What is said about the command, as soon as something is."""
        future: Future[Said] = Future()
        with self._lock:
            self._waiting.setdefault(receipt, []).append(future)
            self._some.set()
        return future

    def settle(self, receipt: uuid.UUID) -> Said:
        """Say only the receipt, unless coordinates were said; what is said from now on."""
        with kept(self._settings) as connection:
            answers.settle(connection, receipt)
            return answers.read_said(connection, [receipt])[receipt]

    def work(self) -> None:
        """Look, and wait a little for the next notification. Only one thread may call this."""
        if not self._some.wait(_IDLE_SECONDS):
            return
        try:
            if self._connection is None:
                self._connection = connect(self._settings, autocommit=True)
                self._connection.execute(f"LISTEN {answers.READ}")
            self._look(self._connection)
            for _ in self._connection.notifies(timeout=_LOOK_SECONDS, stop_after=1):
                pass
        except psycopg.Error as error:
            log.warning("commands are answered with receipts: %s", error)
            self.stop()
            self._receipts()  # a command that waits no longer must not open a connection
            self._never.wait(_RETRY_SECONDS)

    def stop(self) -> None:
        """Close the connection. The next call of `work` opens another one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _look(self, connection: Connection) -> None:
        receipts = self._receipts()
        for receipt, said in answers.read_said(connection, receipts).items() if receipts else ():
            with self._lock:
                futures = self._waiting.pop(receipt, [])
            for future in futures:
                if future.set_running_or_notify_cancel():
                    future.set_result(said)

    def _receipts(self) -> list[uuid.UUID]:
        """The commands that still wait."""
        with self._lock:
            self._waiting = {
                r: kept for r, each in self._waiting.items() if (kept := [f for f in each if not f.done()])
            }
            if not self._waiting:
                self._some.clear()
            return list(self._waiting)
