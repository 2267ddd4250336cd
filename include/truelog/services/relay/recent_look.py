"""Whether the relay has looked for rows to publish recently."""

from truelog.lag import output_lag
from truelog.schema.names import OUTPUT
from truelog.storage import db_snapshot
from truelog.support.errors import ServiceDown
from truelog.support.settings import Settings


def require_recent_look(settings: Settings) -> None:
    """Raise ServiceDown unless the relay has looked recently."""
    with db_snapshot.read_snapshot(settings) as connection:
        age = output_lag.look_age(connection)
    if age is None or age > output_lag.DEAD_SECONDS:
        raise ServiceDown("the relay has never looked" if age is None else f"the relay last looked {age:.0f} s ago")


def address(settings: Settings) -> str:
    return f"{settings.names.topic_of(OUTPUT)}… topics at {settings.kafka_bootstrap}"
