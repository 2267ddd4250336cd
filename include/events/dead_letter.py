"""A dead letter: the bytes of a bad event that was posted to the collector, with the reason."""

from pydantic import Field

from truelog import Event, Quality, Topic

# No subject: a bad event does not reliably say whose data it contains. To erase a person's data, search `raw`.
TOPIC = Topic(key=None, subject=(), partitions=2, retention="30 days", internal=True)
# Having few dead letters is good, having many raises a separate alert, and their contents follow no pattern.
QUALITY = Quality(volume=(0, 10), drift=1.0)


class DeadLetter(Event):
    """A bad event, stored so that it can be corrected and sent again."""

    event_type: str | None = Field(None, description="The event type given in the event, if that type exists.")
    field: str = Field(description="The invalid field, or `record` for the event as a whole.")
    reason: str = Field(description="Why the event is invalid.")
    sender: str = Field(description="Name of the sender's API key.")
    raw: str = Field(description="The posted bytes in base64.")
