"""A change of a shopping cart. A cart is the sum of its events, and its history is never lost."""

from typing import Literal

from pydantic import Field

from truelog import Event, Required, Topic

TOPIC = Topic(key="cart_id", subject=("visitor_id",), partitions=4, retention="7 days", compacted=False)
REQUIRED = [
    Required("product", when="verb", is_in=("added", "quantity_changed", "removed")),
    Required("quantity", when="verb", is_in=("added", "quantity_changed")),
]


class CartEvent(Event):
    """A visitor changed a cart: `added`, `quantity_changed`, `removed` or `checked_out`."""

    cart_id: str = Field(min_length=1, max_length=128, description="The site's id for the cart.")
    visitor_id: str = Field(min_length=1, max_length=128, description="The site's id for the visitor.")
    verb: Literal["added", "quantity_changed", "removed", "checked_out"] = Field(description="What happened.")
    product: str | None = Field(
        None, max_length=128, examples=["lamp", "chair"], description="The product; NULL if the cart is checked out."
    )
    quantity: int | None = Field(
        None, ge=0, le=2**31 - 1, examples=[1, 3], description="Items added, or the new quantity."
    )
