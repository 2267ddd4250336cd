"""A claim of a name that only one holder at a time may have, or its release. Only commands write claims."""

from typing import Literal

from pydantic import Field

from truelog import Event, Topic
from truelog.schema.event import NO_LIMIT

TOPIC = Topic(key="name", subject=("holder",), partitions=4, retention="365 days", internal=True)
FUTURE_LIMIT = NO_LIMIT  # whatever a clock says, a claim counts, or its name could be given twice


class Claim(Event):
    """A holder claimed a name, or released it."""

    name: str = Field(min_length=1, max_length=256, description="The name, such as `username:ann`.")
    verb: Literal["claimed", "released"] = Field(description="What happened: claimed, released.")
    holder: str = Field(min_length=1, max_length=128, description="Who claimed or released the name.")
    holder_type: str | None = Field(
        default=None, max_length=249, description="The event type whose key the holder is; of a claim by a command."
    )
