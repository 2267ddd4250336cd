"""Whether the notifier has looked for changes recently."""

from truelog.storage import db_snapshot
from truelog.storage.database import read_value
from truelog.support.errors import ServiceDown
from truelog.support.settings import Settings

_DEAD_SECONDS = 30.0


def require_look(settings: Settings) -> None:
    """Raise ServiceDown unless the notifier has looked recently."""
    with db_snapshot.read_snapshot(settings) as connection:
        query = "SELECT extract(epoch FROM now() - max(looked_at))::float8 FROM truelog.notifier"
        age: float | None = read_value(connection, query)
    if age is None or age > _DEAD_SECONDS:
        raise ServiceDown("the notifier has never looked" if age is None else f"the notifier looked {age:.0f} s ago")


def address(settings: Settings) -> str:
    return f"{len(settings.notification_channels)} channels"
