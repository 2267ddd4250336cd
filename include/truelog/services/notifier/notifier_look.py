"""Whether the notifier has looked for changes recently."""

from truelog.storage import db_snapshot
from truelog.storage.database import read_value
from truelog.support.errors import ServiceDown
from truelog.support.settings import Settings

_DEAD_SECONDS = 30.0


def require_look(settings: Settings) -> None:
    """Raise ServiceDown unless the notifier has looked recently, and could load each view that a rule is about."""
    with db_snapshot.read_snapshot(settings) as connection:
        query = "SELECT extract(epoch FROM now() - nullif(max(looked_at), 'epoch'))::float8 FROM truelog.notifier"
        age: float | None = read_value(connection, query)
    if age is None or age > _DEAD_SECONDS:
        looked = "has never looked" if age is None else f"last looked {age:.0f} s ago"
        raise ServiceDown(f"the notifier {looked}: its log says why")


def address(settings: Settings) -> str:
    return f"{len(settings.notification_channels)} channels"
