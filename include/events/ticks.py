"""A tick: the log's own clock, so that time passes on a quiet log and every reader agrees how late it is."""

from pydantic import Field

from truelog import Event, Topic

TOPIC = Topic(key=None, subject=(), partitions=1, retention="7 days", internal=True)


class Tick(Event):
    """At `occurred_at`, or earlier, every record before `ends` had been appended."""

    ends: str = Field(description="End offsets, read after the time: {topic: {partition: offset}} as text.")
