"""The room for events of accepted commands, which wait in PostgreSQL while Kafka is down."""

from time import monotonic

from truelog.lag.command_lag import waiting_events
from truelog.storage.database import Connection
from truelog.support.errors import NoRoom

_LOOK_SECONDS = 0.5


class Room:
    """Looks at intervals how many events wait. Between two looks, sessions can accept more than the most."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._waiting = 0
        self._looked = float("-inf")

    def require(self, connection: Connection) -> None:
        """Raise NoRoom if as many events wait as may."""
        if monotonic() - self._looked >= _LOOK_SECONDS:
            self._waiting, self._looked = waiting_events(connection), monotonic()
        if self._waiting >= self._most:
            raise NoRoom(
                f"{self._waiting:,} events of accepted commands wait for the log, and TRUELOG_COMMAND_WAITING_EVENTS "
                f"allows {self._most:,}. Is Kafka down, or the service `commands`?"
            )
