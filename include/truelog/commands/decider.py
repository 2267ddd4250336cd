"""The decider: one thread of a collector, which decides the commands that arrive meanwhile in one transaction."""

import logging
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from http import HTTPStatus
from queue import Empty, SimpleQueue

import psycopg

from truelog.commands.catalogue import Catalogue
from truelog.commands.command_log import FoldChanged, Stored
from truelog.commands.decision import key_names
from truelog.commands.folding.states import FoldFailed
from truelog.commands.request import CommandRequest
from truelog.commands.session import Session
from truelog.schema.event import EventTypes
from truelog.support.errors import NoRoom, ServiceDown, TruelogError
from truelog.support.settings import KafkaUser, Settings

log = logging.getLogger(__name__)

_MOST = 200  # commands in a transaction
_MOST_WAITING = 2_000  # commands
_WAIT_SECONDS = 0.2


@dataclass(frozen=True)
class _Waiting:
    """A command whose decision has not begun."""

    request: CommandRequest
    future: "Future[Stored]" = field(default_factory=Future)


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
        It can be cancelled until the decision begins.

        Raises:
            ServiceDown: too many commands wait. This one is not decided.
        """
        if self._queue.qsize() >= _MOST_WAITING:
            raise ServiceDown(f"{_MOST_WAITING:,} commands wait for a decision already")
        waiting = _Waiting(request)
        self._queue.put(waiting)
        return waiting.future

    def work(self) -> None:
        """Decide what has arrived. Only one thread may call this."""
        begun = [each for each in self._arrived() if each.future.set_running_or_notify_cancel()]
        if begun:
            self._decide(begun)

    def _decide(self, begun: Sequence[_Waiting]) -> None:
        try:
            self._session = self._session or Session(self._settings, self._catalogue, KafkaUser.COLLECTOR)
            begun = _refuse_missing(self._session, begun)
            decided = self._session.decide(self._types(), [each.request for each in begun]) if begun else []
        except FoldChanged:
            self._decide(begun)  # now without the commands on these states
        except NoRoom as full:
            _fail(begun, full)  # the session stays: while Kafka is down, another one could not begin
        except FoldFailed as error:
            self._decide_apart(begun, error)
        except (psycopg.Error, TruelogError) as error:
            self.stop()
            log.warning("no decision: %s", error)
            _fail(begun, ServiceDown(str(error) if isinstance(error, TruelogError) else "no database"))
        except Exception as error:  # a defect, which must not end the thread
            self.stop()
            log.exception("no decision")
            _fail(begun, error)
        else:
            for each, stored in zip(begun, decided, strict=True):
                each.future.set_result(stored)

    def _decide_apart(self, begun: Sequence[_Waiting], failed: FoldFailed) -> None:
        """Decide each command alone, so that only those fail whose keys have an event that the fold cannot read."""
        if len(begun) == 1:
            log.error("no decision", exc_info=failed)
            begun[0].future.set_result(Stored(HTTPStatus.INTERNAL_SERVER_ERROR, {"error": str(failed)}))
            return
        for each in begun:
            if self._session is None:
                _fail([each], ServiceDown("the session has ended"))
            else:
                self._decide([each])

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


def _refuse_missing(session: Session, begun: Sequence[_Waiting]) -> list[_Waiting]:
    """Refuse the commands whose states are not confirmed, and return the others."""
    ready = list[_Waiting]()
    for each in begun:
        if reasons := session.missing({name.event for name in key_names(each.request)}):
            _fail([each], ServiceDown(" ".join(reasons[event] for event in sorted(reasons))))
        else:
            ready.append(each)
    return ready


def _fail(begun: Iterable[_Waiting], error: Exception) -> None:
    for each in begun:
        each.future.set_exception(error)
