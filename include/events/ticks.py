"""A tick of the log's own clock, so that time advances even on a quiet log and all readers agree on the time."""

from pydantic import Field

from truelog import Event, Topic

TOPIC = Topic(key=None, subject=(), partitions=1, retention="7 days", internal=True)


class Tick(Event):
    """Every record that was appended before `occurred_at` is below the offsets in `ends`."""

    ends: str = Field(description="End offsets, read after the time, as text: {topic: {partition: offset}}.")
