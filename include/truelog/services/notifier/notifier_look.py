"""Whether the notifier has looked for changes recently."""

from truelog.lag import notification_lag
from truelog.storage import db_snapshot
from truelog.support.errors import ServiceDown
from truelog.support.settings import Settings


def require_look(settings: Settings) -> None:
    """Raise ServiceDown unless the notifier has looked recently, and could load each view that a rule is about."""
    with db_snapshot.read_snapshot(settings) as connection:
        age = notification_lag.look_age(connection)
    if age is None or age > notification_lag.DEAD_SECONDS:
        looked = "has never looked" if age is None else f"last looked {age:.0f} s ago"
        raise ServiceDown(f"the notifier {looked}: its log says why")


def address(settings: Settings) -> str:
    return f"{len(settings.notification_channels)} channels"
