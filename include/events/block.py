"""A block: an address that may make no requests, for some time or until it is unblocked."""

from datetime import datetime
from typing import Literal

from pydantic import Field

from truelog import Event, Topic

TOPIC = Topic(key="address", subject=("address",), partitions=1, retention="7 days", internal=True)
ADDRESSES = ["192.0.2.1", "2001:db8::1"]


class Block(Event):
    """An operator `blocked` or `unblocked` an address."""

    address: str = Field(
        min_length=1, max_length=45, examples=ADDRESSES, description="IPv4 or IPv6 address in its canonical form."
    )
    verb: Literal["blocked", "unblocked"] = Field(description="What happened.")
    until: datetime | None = Field(None, description="When the block ends by itself; NULL if only a person ends it.")
    reason: str | None = Field(None, max_length=512, description="Why the address is blocked.")
    decided_by: str | None = Field(None, max_length=256, description="Who decided.")
