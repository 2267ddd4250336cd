"""The PostgreSQL sessions that a process keeps open for its polls, in all of its threads.

A new session costs 7 ms of CPU time, half of it in PostgreSQL: a process, the check of the password, and the catalog,
which each session reads for itself. A poll that reads a few rows costs a tenth of that.

Each statement of a kept session is a transaction of its own, unless the block begins one. A session between two blocks
therefore has no snapshot and no lock, and delays no erasure and no vacuum.

A session is used again only if PostgreSQL answers an empty query. So a poll after a restart of PostgreSQL succeeds at
once, and PostgreSQL that hangs delays a poll for some seconds only, as with a new session.
"""

import atexit
import os
import select
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, NamedTuple

import psycopg
from psycopg.pq import TransactionStatus

from truelog.storage.database import Connection, connect
from truelog.support.settings import Settings

_MOST_IDLE = 4  # sessions of the process; polls seldom overlap
_LONGEST_IDLE = 60.0  # seconds
_PATIENCE = 10_000  # milliseconds, as for the beginning of a new session

_Address = tuple[Any, ...]


class _Idle(NamedTuple):
    """A session between two blocks, and since when."""

    address: _Address
    since: float
    session: Connection


@dataclass
class _Kept:
    """The idle sessions of a process, the last used session at the end."""

    idle: list[_Idle] = field(default_factory=list)
    lock: Lock = field(default_factory=Lock)

    def take(self, address: _Address) -> Connection | None:
        """The session that was used last, unless none is open."""
        while True:
            with self.lock:
                found = next((each for each in reversed(self.idle) if each.address == address), None)
                if found is None:
                    return None
                self.idle.remove(found)
            if _answers(found.session):
                return found.session
            found.session.close()

    def give_back(self, address: _Address, session: Connection) -> None:
        """Keep the session, and close sessions that were idle for long or are too many."""
        now = time.monotonic()
        with self.lock:
            recent = [each for each in self.idle if each.since > now - _LONGEST_IDLE]
            recent = [*recent, _Idle(address, now, session)][-_MOST_IDLE:]
            surplus, self.idle = [each for each in self.idle if each not in recent], recent
        for each in surplus:
            each.session.close()

    def close(self) -> None:
        while self.idle:
            self.idle.pop().session.close()


_of_process: dict[int, _Kept] = {}  # by pid, because a forked process must not use the sessions of its parent


@contextmanager
def kept(settings: Settings) -> Iterator[Connection]:
    """A session with autocommit for the block, which leaves it as it was: without settings and locks of the session.

    If the block fails, the session is closed.
    """
    sessions, address = _of_process.setdefault(os.getpid(), _Kept()), tuple(sorted(settings.database().items()))
    session = sessions.take(address) or _new(settings)
    try:
        yield session
    except BaseException:
        session.close()
        raise
    sessions.give_back(address, session)


def _new(settings: Settings) -> Connection:
    session = connect(settings, autocommit=True)
    session.prepare_threshold = None  # a prepared query fails when a relation gets other columns, as in a cut-over
    return session


def _answers(session: Connection) -> bool:
    """Whether PostgreSQL answers an empty query. It does not if it has ended the session, or hangs."""
    arrived, libpq = select.poll(), session.pgconn
    try:
        libpq.send_query(b"")
        arrived.register(session.fileno(), select.POLLIN)
        if not arrived.poll(_PATIENCE):
            return False
        while libpq.get_result():
            pass
    except psycopg.Error:
        return False
    return libpq.transaction_status == TransactionStatus.IDLE


@atexit.register
def close_idle() -> None:
    """Say goodbye to PostgreSQL, which would log the end of each session otherwise."""
    if (own := _of_process.get(os.getpid())) is not None:
        own.close()
