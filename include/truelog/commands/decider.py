"""The decider: one thread of a collector, which decides the commands that arrive meanwhile in one transaction."""

import logging
from collections.abc import Callable
from concurrent.futures import Future
from queue import Empty, SimpleQueue

import psycopg

from truelog.commands.catalogue import Catalogue
from truelog.commands.command_log import Stored
from truelog.commands.request import CommandRequest
from truelog.commands.session import Session
from truelog.schema.event import EventTypes
from truelog.support.errors import NoRoom, ServiceDown, TruelogError
from truelog.support.settings import Settings

log = logging.getLogger(__name__)

_MOST = 200  # commands in a transaction
_WAIT_SECONDS = 0.2

_Waiting = tuple[CommandRequest, "Future[Stored]"]


class Decider:
    """Decides commands in the order in which they arrive."""

    def __init__(self, settings: Settings, catalogue: Catalogue, types: Callable[[], EventTypes]) -> None:
        self._settings = settings
        self._catalogue = catalogue
        self._types = types
        self._queue: SimpleQueue[_Waiting] = SimpleQueue()
        self._session: Session | None = None

    def submit(self, request: CommandRequest) -> "Future[Stored]":
        """The decision, which is in PostgreSQL when the future is done.

        The future raises ServiceDown if nothing is known about the decision. The same idempotency key then finds it.
        """
        future: Future[Stored] = Future()
        self._queue.put((request, future))
        return future

    def work(self) -> None:
        """Decide what has arrived. Only one thread may call this."""
        if not (waiting := self._arrived()):
            return
        try:
            self._session = self._session or Session(self._settings, self._catalogue)
            decided = self._session.decide(self._types(), [request for request, _ in waiting])
        except NoRoom as full:
            _fail(waiting, full)  # the session stays: while Kafka is down, another one could not begin
        except (psycopg.Error, TruelogError) as error:
            self.stop()
            log.warning("no decision: %s", error)
            _fail(waiting, ServiceDown(str(error) if isinstance(error, TruelogError) else "no database"))
        except Exception as error:  # a defect, which must not end the thread
            self.stop()
            log.exception("no decision")
            _fail(waiting, error)
        else:
            for (_, future), stored in zip(waiting, decided, strict=True):
                future.set_result(stored)

    def stop(self) -> None:
        """Close the session. The next command begins another one."""
        if self._session is not None:
            self._session.__exit__(None, None, None)
            self._session = None

    def _arrived(self) -> list[_Waiting]:
        waiting = list[_Waiting]()
        try:
            waiting.append(self._queue.get(timeout=_WAIT_SECONDS))
            while len(waiting) < _MOST:
                waiting.append(self._queue.get_nowait())
        except Empty:
            pass
        return waiting


def _fail(waiting: list[_Waiting], error: Exception) -> None:
    for _, future in waiting:
        future.set_exception(error)
