"""The command log as the feed of a relay, which publishes accepted events to their topics."""

import uuid
from collections.abc import Callable, Mapping, Sequence

from truelog.relay.feed import Beginning, Row
from truelog.relay.place import Place
from truelog.storage.database import Connection, read_value
from truelog.support.errors import Fenced, ServiceDown

WRITTEN = "truelog_command_written"  # the channel that says that the command log contains new events
_PORTION = 500  # events in one transaction of Kafka


class CommandFeed:
    """The events of the command log, in the order of their numbers."""

    name = "commands"

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.given: frozenset[str] = frozenset()  # the event types of the rows that it gave last
        self.begun = ""  # the id of the beginning that it gave last

    def beginning(self) -> Beginning:
        [row] = self._connection.execute("SELECT beginning::text, first FROM truelog.command_number").fetchall()
        found = Beginning(*row)
        self.begun = found.id
        return found

    def id_of(self, number: int) -> str | None:
        found: str | None = read_value(
            self._connection, "SELECT event_id FROM truelog.command_event WHERE number = %s", (number,)
        )
        return found

    def next_rows(self, number: int) -> Sequence[Row]:
        rows = self._connection.execute(
            "SELECT number, event_id, event, key, value FROM truelog.command_event WHERE number >= %s "
            "ORDER BY number LIMIT %s",
            (number, _PORTION),
        )
        found = [Row(number, event_id, event, key.encode(), value, {}) for number, event_id, event, key, value in rows]
        self.given = frozenset(each.topic for each in found)
        return found

    def trim(self, number: int) -> None:
        """Upkeep removes old rows (`truelog.maintenance.retention`), because answers are repeated from them."""


def begin_again(
    connection: Connection, begun: str, place: Place | None, missing: Callable[[list[str]], Mapping[str, str]]
) -> None:
    """Give new numbers, beyond the place, to all events that are not in the log.

    `begun` is the id of the beginning that the relay has compared with its place.

    A database that was restored from a backup has numbers that the relay has published with other events. `missing`
    gives the reason for each event type whose log was not read to its end since the restore. Events without coordinates
    of all other types were never published.

    Raises:
        Fenced: another service has given new numbers since then, and may have published the events with them.
        ServiceDown: events of a missing type have no coordinates, so they may have been published. Nothing has changed.
    """
    last = 0 if place is None else place.number
    with connection.transaction():
        query = "SELECT beginning::text, last FROM truelog.command_number FOR UPDATE"
        [(beginning, stored)] = connection.execute(query).fetchall()
        if beginning != begun:
            raise Fenced("another service `commands` has given new numbers to the accepted events; stop one of them")
        _require_all_read(connection, missing)
        first = max(last, stored) + 1
        renumbered = connection.execute(
            "UPDATE truelog.command_event AS e SET number = %s + n.place FROM (SELECT number, "
            'row_number() OVER (ORDER BY number) - 1 AS place FROM truelog.command_event WHERE "offset" IS NULL) AS n '
            "WHERE e.number = n.number",
            (first,),
        ).rowcount
        connection.execute(
            "UPDATE truelog.command_number SET beginning = %s, first = %s, last = %s",
            (uuid.uuid4(), first, first + renumbered - 1),
        )


def _require_all_read(connection: Connection, missing: Callable[[list[str]], Mapping[str, str]]) -> None:
    rows = connection.execute('SELECT DISTINCT event FROM truelog.command_event WHERE "offset" IS NULL ORDER BY event')
    if unread := missing([event for (event,) in rows]):
        raise ServiceDown(
            f"accepted events of {', '.join(unread)} may be in the log already, so they cannot get new numbers. "
            f"{' '.join(unread.values())} If you have removed files of commands or event types since the backup, "
            "restore these files, run `truelog up`, and restart the service `commands`."
        )
