"""How far notifications are: when the notifier last looked, and what waits for it and for its channels."""

from dataclasses import dataclass

from truelog.storage.database import Connection, read_value

DEAD_SECONDS = 30.0

_AGE = "SELECT extract(epoch FROM now() - nullif(max(looked_at), 'epoch'))::float8 FROM truelog.notifier"
_NEEDED = """
    SELECT EXISTS (SELECT FROM truelog.command_key WHERE event = 'notification_rule' AND state <> '{}')
        OR EXISTS (SELECT FROM truelog.notification_delivery WHERE done_at IS NULL)
"""
_UNREAD = """
    SELECT p.view, o.number - p.number, extract(epoch FROM now() - (
        SELECT made_at FROM truelog.output_step s
        WHERE (s.view, s.version) = (p.view, p.version) AND last > p.number ORDER BY last LIMIT 1
    ))::float8, NULL
    FROM truelog.notification_place p JOIN truelog.output o USING (view, version, beginning)
    WHERE o.number > p.number ORDER BY 1
"""
_UNDELIVERED = """
    SELECT channel, count(*), extract(epoch FROM now() - min(made_at))::float8,
        (array_agg(failed ORDER BY number) FILTER (WHERE failed IS NOT NULL))[1]
    FROM truelog.notification_delivery WHERE done_at IS NULL AND next_at < 'infinity' GROUP BY 1 ORDER BY 1
"""
_LOST = """
    SELECT channel, count(*), extract(epoch FROM now() - max(done_at))::float8,
        (array_agg(failed ORDER BY done_at DESC))[1]
    FROM truelog.notification_delivery
    WHERE outcome IN ('refused', 'abandoned') AND done_at > now() - make_interval(secs => %s) GROUP BY 1 ORDER BY 1
"""


@dataclass(frozen=True)
class Waiting:
    """What has not arrived: changed rows of a view, or notifications. `failed` is why the last try failed."""

    name: str
    count: int
    seconds: float
    failed: str | None


def look_age(connection: Connection) -> float | None:
    """How many seconds ago the notifier last looked; None if it has never looked."""
    age: float | None = read_value(connection, _AGE)
    return age


def is_needed(connection: Connection) -> bool:
    """Whether a notification rule is in force, or a notification waits."""
    return bool(read_value(connection, _NEEDED))


def followed_views(connection: Connection) -> list[str]:
    """The views whose changed rows the notifier reads."""
    return [str(view) for (view,) in connection.execute("SELECT view FROM truelog.notification_place ORDER BY 1")]


def unread(connection: Connection) -> list[Waiting]:
    """The changed rows that the notifier has not read, by view."""
    return _waiting(connection, _UNREAD)


def undelivered(connection: Connection) -> list[Waiting]:
    """The notifications that are not delivered, by channel."""
    return _waiting(connection, _UNDELIVERED)


def lost(connection: Connection, seconds: float) -> list[Waiting]:
    """The notifications of the last seconds that were refused or abandoned, by channel, with the age of the newest."""
    return _waiting(connection, _LOST, (seconds,))


def _waiting(connection: Connection, query: str, given: tuple[float, ...] = ()) -> list[Waiting]:
    found = connection.execute(query.encode(), given).fetchall()
    return [Waiting(str(name), int(count), float(age or 0), failed) for name, count, age, failed in found]
