"""A claim of a name that only one holder at a time may have, or its release. Only commands write claims."""

from typing import Literal

from pydantic import Field

from truelog import Event, Topic

TOPIC = Topic(key="name", subject=("holder",), partitions=4, retention="365 days", internal=True)


class Claim(Event):
    """A holder claimed a name, or released it."""

    name: str = Field(min_length=1, max_length=256, description="The name, such as `username:ann`.")
    verb: Literal["claimed", "released"] = Field(description="What happened: claimed, released.")
    holder: str = Field(min_length=1, max_length=128, description="Who claimed or released the name.")
