"""A rate policy: how many requests an address may make in a window of time. Each event is the whole policy."""

from typing import Literal

from pydantic import Field

from truelog import Event, Required, Topic

# One partition gives all policies one order. Topics of policies are internal, or a sender could change its own policy.
TOPIC = Topic(key="address", subject=("address",), partitions=1, retention="7 days", internal=True)
REQUIRED = [
    Required("max_requests", when="verb", is_in=("set",)),
    Required("window_seconds", when="verb", is_in=("set",)),
]
ADDRESSES = ["192.0.2.1", "all"]


class RatePolicy(Event):
    """An operator `set` or `removed` the policy of an address, or of all addresses without a policy of their own."""

    address: str = Field(
        min_length=1,
        max_length=45,
        examples=ADDRESSES,
        description="IPv4 or IPv6 address in its canonical form, or `all` for every address without its own policy.",
    )
    verb: Literal["set", "removed"] = Field(description="What happened.")
    max_requests: int | None = Field(
        None, ge=1, le=2**31 - 1, examples=[1, 100], description="Requests allowed in a window; NULL if removed."
    )
    window_seconds: int | None = Field(
        None, ge=10, le=86_400, examples=[10, 3600], description="Length of the window, in whole tens of seconds."
    )
    decided_by: str | None = Field(None, max_length=256, description="Who decided.")
