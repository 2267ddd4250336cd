"""How fast the log that a replication slot retains grows, measured over spans of at least ten minutes."""

from datetime import datetime, timedelta

from truelog.capture import epochs
from truelog.storage.database import Connection

_SPAN = timedelta(minutes=10)
_HOUR = timedelta(hours=1)


def measure(connection: Connection, event_type: str, retained: int, now: datetime) -> float | None:
    """The growth in bytes an hour in the last span that has ended; None in the first span."""
    epochs.begin(connection, event_type)
    query = "SELECT retained_at, retained, growth FROM truelog.capture WHERE event_type = %s"
    [(began, before, growth)] = connection.execute(query, (event_type,)).fetchall()
    if began is not None and now - began < _SPAN:
        return None if growth is None else float(growth)
    growth = None if began is None else (retained - before) / ((now - began) / _HOUR)
    connection.execute(
        "UPDATE truelog.capture SET retained_at = %s, retained = %s, growth = %s WHERE event_type = %s",
        (now, retained, growth, event_type),
    )
    return growth


def hours_left(room: int | None, growth: float | None) -> float | None:
    """The hours until a slot that grows like this has used up the room in bytes; None if it never does."""
    return room / growth if room is not None and growth is not None and growth > 0 else None
