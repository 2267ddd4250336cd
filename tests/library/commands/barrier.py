"""Sessions that decide at the same time, and a barrier that lets all of them meet at one statement of the protocol."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial

import pytest

from tests.deadline import deadline, until
from tests.library.commands.decisions import TYPES, Shop, claim
from truelog.commands import command_log
from truelog.commands.command_log import Stored, decide_all
from truelog.commands.decision import ACCEPTED
from truelog.commands.folding import states
from truelog.commands.request import CommandRequest
from truelog.storage.database import Connection, connect, read_value
from truelog.support.errors import ServiceDown
from truelog.support.settings import Settings

CLIENTS = 16
POINTS = (
    "command.made",
    "command.locked",
    "command.confirmed",
    "command.remembered",
    "command.read",
    "command.numbered",
    "command.decided",
    "command.written",
)


@dataclass
class Barrier:
    """Holds each client at a point until every client has been there, is there, or waits for a lock."""

    connection: Connection
    clients: int
    seconds: float
    arrived: int = 0
    passing: int = 0  # the clients that arrived first, up to this number, go on
    lock: threading.Lock = field(default_factory=threading.Lock)

    def wait(self) -> None:
        with self.lock:
            self.arrived += 1
            number = self.arrived
        until(partial(self._require_full, number), self.seconds, "each client at the barrier, past it, or at a lock")

    def _require_full(self, number: int) -> None:
        if number > self.passing and self.lock.acquire(blocking=False):  # one of them looks
            try:
                self._look()
            finally:
                self.lock.release()
        if number > self.passing:
            raise ServiceDown(f"{self.arrived} clients have arrived")

    def _look(self) -> None:
        query = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
        if self.arrived + read_value(self.connection, query) >= self.clients:
            self.passing = self.arrived


@contextmanager
def held_at(
    settings: Settings, point: str, monkeypatch: pytest.MonkeyPatch, clients: int = CLIENTS, seconds: float = 30
) -> Iterator[None]:
    """Let each client wait once, when it first reaches the point. Some client must reach it."""
    with connect(settings, autocommit=True) as connection, monkeypatch.context() as patched:
        barrier, passed = Barrier(connection, clients, seconds), threading.local()

        def reach(reached: str) -> None:
            if reached == point and not getattr(passed, "once", False):
                passed.once = True
                barrier.wait()

        patched.setattr(command_log, "reach", reach)
        patched.setattr(states, "reach", reach)
        yield
        assert barrier.arrived, f"no client has reached {point}"


def concurrently(settings: Settings, shop: Shop, commands: list[CommandRequest], seconds: float = 60) -> list[Stored]:
    """Each command is decided in a session of its own, all at the same time.

    All sessions are open before the first command. If a busy server refuses a session, no other session waits for it.
    """
    generations = shop.generations

    def decide(command: CommandRequest, connection: Connection) -> Stored:
        [decided] = decide_all(connection, shop.commands, TYPES, generations, [command])
        return decided

    with ExitStack() as opened, ThreadPoolExecutor(len(commands)) as pool:
        sessions = [opened.enter_context(_patient_session(settings)) for _ in commands]
        return list(pool.map(decide, commands, sessions, timeout=deadline(seconds)))


def _patient_session(settings: Settings) -> Connection:
    """A session whose transaction may wait at a barrier for longer than transactions of the product."""
    connection = connect(settings, autocommit=True)
    connection.execute("SET idle_in_transaction_session_timeout = 0")
    return connection


def require_one_winner(settings: Settings, shop: Shop, name: str, clients: int = CLIENTS, seconds: float = 60) -> None:
    before = last_number(shop)
    decided = concurrently(settings, shop, [claim(f"p{n}", name) for n in range(clients)], seconds)
    won = [each for each in decided if each.status == ACCEPTED]
    assert len(won) == 1, f"{len(won)} clients have the same name"
    assert {each.answer["version"] for each in decided} == {1}
    assert last_number(shop) == before + 1, "a loser has drawn a number"


def last_number(shop: Shop) -> int:
    return max((row.number for row in shop.feed.next_rows(shop.published + 1)), default=shop.published)
