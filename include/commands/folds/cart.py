"""The state of a cart: the quantity of each product that is in it, and whether it is checked out.

The view `cart` computes the same from the same events. What comes after the first check-out changes nothing.
"""

from pydantic import Field

from truelog.commands.declaration import Fields, Fold, NewEvent, Payload, State

CHECKED_OUT = "the cart is checked out"


class CartFields(Fields):
    """What each command on a cart says."""

    cart_id: str = Field(min_length=1, max_length=128, description="The site's id for the cart.")
    visitor_id: str = Field(min_length=1, max_length=128, description="The site's id for the visitor.")


class ProductFields(CartFields):
    """What each command on a product in a cart says."""

    product: str = Field(min_length=1, max_length=128, description="The product.")


def cart_id(command: CartFields) -> str:
    return command.cart_id


def apply(cart: State, event: Payload) -> State:
    """The cart after the event."""
    if cart.get("checked_out"):
        return cart
    if event["verb"] == "checked_out":
        return {**cart, "checked_out": True}
    products = dict(cart.get("products", {}))
    product, quantity = event["product"], event["quantity"] or 0
    if product is None:
        return cart
    if event["verb"] == "added":
        products[product] = products.get(product, 0) + quantity
    elif event["verb"] == "quantity_changed":
        products[product] = quantity
    elif event["verb"] == "removed":
        products[product] = 0
    return {**cart, "products": {name: count for name, count in products.items() if count}}


def changed(command: CartFields, verb: str, **more: object) -> list[NewEvent]:
    """The event that says what happened to the cart."""
    fields = {"cart_id": command.cart_id, "visitor_id": command.visitor_id, "verb": verb, **more}
    return [NewEvent("cart_event", fields)]


FOLD = Fold("cart_event", apply)
