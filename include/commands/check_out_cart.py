"""Check out a cart."""

from commands.folds import cart
from truelog.commands.declaration import Command, Decision, Refused, State


class CheckOutCart(cart.CartFields):
    """The cart to check out."""


def decide(state: State, command: CheckOutCart) -> Decision:
    if state.get("checked_out"):
        return Refused(cart.CHECKED_OUT)
    if not state.get("products"):
        return Refused("the cart is empty")
    return cart.changed(command, "checked_out")


COMMAND = Command(CheckOutCart, cart.FOLD, cart.cart_id, decide)
