"""A session: a connection to PostgreSQL on which commands are decided.

A database that was restored from a backup lacks decisions whose events are in the log. It ends all connections, so a
session decides nothing before the states contain the log up to the end that it had when the session began. An open
transaction belongs to the log: it may be about to commit.
"""

from collections.abc import Sequence
from types import TracebackType
from typing import Self

from truelog.commands.catalogue import Catalogue, usable_folds
from truelog.commands.command_log import Generations, Stored, decide_all
from truelog.commands.folding.fold_positions import confirm
from truelog.commands.request import CommandRequest
from truelog.commands.room import Room
from truelog.schema.event import EventTypes
from truelog.storage.database import connect
from truelog.support.settings import Settings


class Session:
    """A connection on which commands are decided.

    Raises:
        ServiceDown: the states do not contain the log yet, or Kafka does not answer.
    """

    def __init__(self, settings: Settings, catalogue: Catalogue, types: EventTypes) -> None:
        self._catalogue = catalogue
        self._room = Room(settings.command_waiting_events)
        self._connection = connect(settings, autocommit=True)
        try:
            folds = usable_folds(catalogue, types)
            self._generations: Generations = confirm(self._connection, settings, catalogue, folds)
        except BaseException:
            self._connection.close()
            raise

    def decide(self, types: EventTypes, requests: Sequence[CommandRequest]) -> list[Stored]:
        """Decide commands in their order. After another error than these, the session is no longer used.

        Raises:
            NoRoom: too many accepted events wait for the log. Nothing was decided.
            FoldFailed: the fold of one of the keys cannot read an event. Nothing was decided.
        """
        self._room.require(self._connection)
        return decide_all(self._connection, self._catalogue, types, self._generations, requests)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._connection.close()
