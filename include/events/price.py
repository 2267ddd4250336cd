"""A price at which something was traded."""

from pydantic import Field

from truelog import Event, Topic

TOPIC = Topic(key="symbol", subject=(), partitions=4, retention="7 days", compacted=False)


class Price(Event):
    """Something was traded at a price."""

    symbol: str = Field(min_length=1, max_length=32, examples=["AAA", "BBB"], description="What was traded.")
    price: int = Field(ge=0, le=2**53, description="Price in the currency's smallest unit.")
