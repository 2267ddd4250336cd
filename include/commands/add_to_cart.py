"""Put items of a product into a cart."""

from pydantic import Field

from commands.folds import cart
from truelog.commands.declaration import Command, Decision, Refused, State


class AddToCart(cart.ProductFields):
    """How many items of a product to add."""

    quantity: int = Field(le=1_000_000, description="Items to add; at least 1.")


def decide(state: State, command: AddToCart) -> Decision:
    if state.get("checked_out"):
        return Refused(cart.CHECKED_OUT)
    if command.quantity < 1:
        return Refused("the quantity must be at least 1")
    return cart.changed(command, "added", product=command.product, quantity=command.quantity)


COMMAND = Command(AddToCart, cart.FOLD, cart.cart_id, decide)
