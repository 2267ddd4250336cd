"""The epochs of captured tables. A new snapshot begins a new epoch, which closes every row that it does not contain."""

from collections.abc import Iterable, Mapping

from truelog.storage.database import Connection, read_value


def begin(connection: Connection, event_type: str) -> int:
    """The epoch of a table, which is 1 if the table has not been captured before."""
    connection.execute("INSERT INTO truelog.capture (event_type) VALUES (%s) ON CONFLICT DO NOTHING", (event_type,))
    return int(read_value(connection, "SELECT epoch FROM truelog.capture WHERE event_type = %s", (event_type,)))


def begin_next(connection: Connection, event_type: str) -> int:
    """Begin another epoch of a table, and return its number."""
    begin(connection, event_type)
    advance = "UPDATE truelog.capture SET epoch = epoch + 1, since = now() WHERE event_type = %s RETURNING epoch"
    return int(read_value(connection, advance, (event_type,)))


def record_refused(connection: Connection, reasons: Mapping[str, str | None]) -> None:
    """Record why each of these tables is not captured; None if it is."""
    for event_type, reason in reasons.items():
        begin(connection, event_type)
        connection.execute("UPDATE truelog.capture SET refused = %s WHERE event_type = %s", (reason, event_type))


def refused(connection: Connection, event_types: Iterable[str]) -> dict[str, str]:
    """The reason for each of these tables that is not captured."""
    query = "SELECT event_type, refused FROM truelog.capture WHERE refused IS NOT NULL AND event_type = ANY(%s)"
    return dict(connection.execute(query, (list(event_types),)).fetchall())
