"""A step of the delivery of an order."""

from typing import Literal

from pydantic import Field

from truelog import Event, Topic

TOPIC = Topic(key="order_id", subject=(), partitions=4, retention="7 days", compacted=False)


class Shipment(Event):
    """An order was `packed`, `shipped` or `delivered`."""

    order_id: str = Field(min_length=1, max_length=128, examples=["o1", "o2"], description="The order's id.")
    verb: Literal["packed", "shipped", "delivered"] = Field(description="What happened.")
