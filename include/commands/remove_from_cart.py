"""Take a product out of a cart."""

from commands.folds import cart
from truelog.commands.declaration import Command, Decision, Refused, State


class RemoveFromCart(cart.ProductFields):
    """The product to take out."""


def decide(state: State, command: RemoveFromCart) -> Decision:
    if state.get("checked_out"):
        return Refused(cart.CHECKED_OUT)
    if command.product not in state.get("products", {}):
        return Refused(f"{command.product} is not in the cart")
    return cart.changed(command, "removed", product=command.product)


COMMAND = Command(RemoveFromCart, cart.FOLD, cart.cart_id, decide)
