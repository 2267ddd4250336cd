"""Shows that a session waits for an advisory lock, so that a test need not infer it from a duration."""

from truelog.storage.database import connect
from truelog.support.errors import ServiceDown
from truelog.support.settings import Settings


def require_waiting(settings: Settings) -> None:
    """Require that a session of the database waits for an advisory lock.

    Raises:
        ServiceDown: no session waits.
    """
    query = "SELECT FROM pg_stat_activity WHERE wait_event = 'advisory' AND datname = current_database()"
    with connect(settings) as connection:
        if connection.execute(query).fetchone() is None:
            raise ServiceDown("no session waits for an advisory lock")
