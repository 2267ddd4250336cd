"""Set the quantity of a product that is in a cart."""

from pydantic import Field

from commands.folds import cart
from truelog.commands.declaration import Command, Decision, Refused, State


class ChangeQuantity(cart.ProductFields):
    """The new quantity of a product."""

    quantity: int = Field(le=1_000_000, description="The new quantity; at least 1.")


def decide(state: State, command: ChangeQuantity) -> Decision:
    if state.get("checked_out"):
        return Refused(cart.CHECKED_OUT)
    if command.quantity < 1:
        return Refused("the quantity must be at least 1; to take the product out, use remove_from_cart")
    if command.product not in state.get("products", {}):
        return Refused(f"{command.product} is not in the cart")
    return cart.changed(command, "quantity_changed", product=command.product, quantity=command.quantity)


COMMAND = Command(ChangeQuantity, cart.FOLD, cart.cart_id, decide)
