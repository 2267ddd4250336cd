"""A dead letter: what was posted to the collector and is no event, byte for byte, with the reason."""

from pydantic import Field

from truelog import Event, Quality, Topic

# No subject: nobody can tell whose data it is that could not be read. Whoever forgets somebody searches `raw`.
TOPIC = Topic(key=None, subject=(), partitions=2, retention="30 days", internal=True)
# Fewer than usual is good news, and how many there are has an alert of its own; whoever sends them may send anything.
QUALITY = Quality(volume=(0, 10), drift=1.0)


class DeadLetter(Event):
    """Something posted that was refused, so that it can be mended and sent again."""

    event_type: str | None = Field(None, description="The event type that it names, where there is such a type.")
    field: str = Field(description="The field at fault; `record` where it is the whole.")
    reason: str = Field(description="Why it was refused.")
    sender: str = Field(description="Name of the API key that it came with.")
    raw: str = Field(description="The bytes as they were posted, in base64.")
