"""An attempt of a customer to pay for an order."""

from typing import Literal

from pydantic import Field

from truelog import Event, Topic

TOPIC = Topic(key="customer_id", subject=("customer_id",), partitions=4, retention="7 days", compacted=False)


class Payment(Event):
    """A customer's payment `failed` or `succeeded`."""

    customer_id: str = Field(min_length=1, max_length=128, examples=["1", "2"], description="The customer's id.")
    order_id: str = Field(min_length=1, max_length=128, examples=["o1", "o2"], description="The order's id.")
    verb: Literal["failed", "succeeded"] = Field(description="What happened.")
    country: str | None = Field(
        None, max_length=2, examples=["DE", "FR"], description="The country of the payment, as ISO 3166 has it."
    )
    amount: int = Field(ge=0, le=2**53, description="The amount in the currency's smallest unit.")
