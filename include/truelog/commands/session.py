"""A session: a connection to PostgreSQL on which commands are decided.

A database that was restored from a backup ends all connections. So a session decides nothing on the states of an event
type before a look since its beginning has confirmed them (`confirmation`).
"""

from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Self

from truelog.commands.catalogue import Catalogue
from truelog.commands.command_log import FoldChanged, Stored, decide_all
from truelog.commands.folding.confirmation import Confirmation
from truelog.commands.request import CommandRequest
from truelog.commands.room import Room
from truelog.schema.event import EventTypes
from truelog.storage.database import connect
from truelog.support.background import Background
from truelog.support.errors import ServiceDown
from truelog.support.settings import KafkaUser, Settings
from truelog.support.wait import until

_LOOK_SECONDS = 0.1
_CONFIRM_SECONDS = 10.0
_FIRST_SECONDS = 2.0  # at most, for the first look, before which nothing can be decided


class Session:
    """A connection on which commands are decided, and a thread that confirms the states."""

    def __init__(self, settings: Settings, catalogue: Catalogue, user: KafkaUser = KafkaUser.READER) -> None:
        self._catalogue = catalogue
        self._room = Room(settings.command_waiting_events)
        self._connection = connect(settings, autocommit=True)
        self._confirmation = Confirmation(settings, catalogue, user)
        self._looks = Background("states of commands", self._confirmation.work, _LOOK_SECONDS)
        self._looks.start()
        self._confirmation.has_looked.wait(_FIRST_SECONDS)

    def missing(self, events: Iterable[str]) -> dict[str, str]:
        """Why nothing can be decided on the states of these event types. Empty if all are confirmed."""
        return self._confirmation.missing(events)

    def wait_for(self, events: Iterable[str]) -> None:
        """Wait until the states of these event types are confirmed.

        Raises:
            ServiceDown: they are not within some seconds.
        """
        wanted = list(events)

        def require() -> None:
            if reasons := self.missing(wanted):
                raise ServiceDown(" ".join(reasons.values()))

        until(require, _CONFIRM_SECONDS, "the states of commands")

    def decide(self, types: EventTypes, requests: Sequence[CommandRequest]) -> list[Stored]:
        """Decide commands in their order. After another error than these, the session is no longer used.

        Raises:
            NoRoom: too many accepted events wait for the log. Nothing was decided.
            FoldChanged: states of keys are no longer confirmed, and are missing from now on. Nothing was decided.
            FoldFailed: the fold of one of the keys cannot read an event. Nothing was decided.
        """
        self._room.require(self._connection)
        try:
            return decide_all(self._connection, self._catalogue, types, self._confirmation.generations, requests)
        except FoldChanged as changed:
            self._confirmation.withdraw(changed.events)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._looks.stop(0)  # a look may wait for Kafka
        self._connection.close()
