"""What the notifier does again and again, one step at a time."""

from truelog.notifications import delivery, notifier
from truelog.storage.database import Connection
from truelog.support.errors import ServiceDown
from truelog.support.settings import Settings

SECRET = "a-secret-token"


def look(connection: Connection) -> None:
    """Look until there is nothing to do, as the service does."""
    while notifier.look(Settings(), connection):
        pass


def deliver(settings: Settings, connection: Connection, name: str = "ops") -> None:
    """Look, and try each notification that is due."""
    look(connection)
    while delivery.deliver_next(settings, connection, name):
        pass


def require_try(settings: Settings, connection: Connection) -> None:
    if not delivery.deliver_next(settings, connection, "ops"):
        raise ServiceDown("nothing is due")
