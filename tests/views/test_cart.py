"""Shopping carts: what is in a cart follows from its events, in their order."""

from collections import defaultdict
from typing import Any

from commands.folds import cart
from tests.beds.lab import Lab
from tests.views.examples import Relations, Row, Rows, Sent, at, example, examples, sent
from tests.views.generated import logs_and_rows, once
from truelog import View
from truelog.commands.declaration import State


def changed(verb: str, product: str | None = "lamp", quantity: int | None = None, **fields: Any) -> Sent:
    defaults = {"cart_id": "c1", "visitor_id": "ann", "occurred_at": at("10:00:00")}
    return sent("cart_event", verb=verb, product=product, quantity=quantity, **defaults | fields)


def contents(rows: list[Row]) -> dict[str, int]:
    return {row["product"]: row["quantity"] for row in rows}


@example([changed("added", quantity=1), changed("added", quantity=2), changed("added", "chair", 1)], in_order=True)
def test_what_is_added_adds_up(rows: Rows) -> None:
    assert contents(rows) == {"chair": 1, "lamp": 3}


LAMPS = [changed("added", quantity=5), changed("quantity_changed", quantity=2), changed("added", quantity=1)]


@examples(
    {
        "set": (LAMPS, {"lamp": 3}),
        "removed": ([*LAMPS, changed("removed")], {}),
        "added again": ([*LAMPS, changed("removed"), changed("added", quantity=4)], {"lamp": 4}),
    },
    in_order=True,
)
def test_a_quantity_is_set_and_a_product_is_removed(rows: Rows, expected: dict[str, int]) -> None:
    assert contents(rows) == expected


@example(
    [
        changed("added", quantity=1),
        changed("checked_out", None, occurred_at=at("10:05:00")),
        changed("removed"),
        changed("added", "chair", 1),
    ],
    in_order=True,
)
def test_nothing_changes_a_cart_after_its_checkout(rows: Rows) -> None:
    assert [(row["product"], row["quantity"], row["checked_out_at"]) for row in rows] == [("lamp", 1, at("10:05:00"))]


@example([changed("added", quantity=1), changed("added", quantity=2, cart_id="c2")], in_order=True)
def test_carts_are_kept_apart(rows: Rows) -> None:
    assert [(row["cart_id"], row["quantity"]) for row in rows] == [("c1", 1), ("c2", 2)]


@example([changed("added", quantity=1), changed("removed"), changed("added", "chair", 2)], in_order=True)
def test_open_carts_and_the_history_of_a_cart(relations: Relations) -> None:
    [opened] = relations["open"]
    assert (opened["cart_id"], opened["products"], opened["items"]) == ("c1", 1, 2)
    history = sorted(relations["history"], key=lambda row: row["offset"])
    assert [(each["verb"], each["product"]) for each in history] == [
        ("added", "lamp"),
        ("removed", "lamp"),
        ("added", "chair"),
    ]


AGAIN = changed("added", quantity=1, event_id="again")


@examples(
    {
        "at once": ([AGAIN, AGAIN], {"lamp": 1}),
        "after other events": ([AGAIN, changed("added", quantity=2), AGAIN], {"lamp": 3}),
        "after the product was removed": ([AGAIN, changed("removed"), AGAIN], {}),
        "with another product": ([AGAIN, changed("added", "rug", 1, event_id="again")], {"lamp": 1}),
    },
    in_order=True,
)
def test_an_event_that_was_sent_again_counts_once(rows: Rows, expected: dict[str, int]) -> None:
    assert contents(rows) == expected


@example([AGAIN, changed("removed"), AGAIN], in_order=True)
def test_the_history_has_an_event_that_was_sent_again_once(relations: Relations) -> None:
    assert sorted((row["offset"], row["verb"]) for row in relations["history"]) == [(0, "added"), (1, "removed")]


@example([changed("added", quantity=n) for n in (1, 2, 3)])
def test_shuffled_events_give_the_cart_of_their_order_in_the_log(rows: Rows) -> None:
    """The shuffled log has other offsets, so it is another history, but sums do not depend on it."""
    assert contents(rows) == {"lamp": 6}


def test_generated_logs_give_the_carts_of_a_naive_loop(lab: Lab, name: str, view: View) -> None:
    products = removals = 0
    for events, found in logs_and_rows(lab, name, view):
        expected = naive_carts(events)
        assert {(row["cart_id"], row["product"]): row["quantity"] for row in found} == expected
        assert carts_of_commands(once(events, lambda each: each["cart_id"])) == expected
        products += len(found)
        removals += naive_carts([event for event in events if event["verb"] != "removed"]) != expected
    assert products > 100, "the logs hold too few carts"
    assert removals > 10, "too few logs remove a product that is in a cart"


def carts_of_commands(events: list[Row]) -> dict[tuple[str, str], int]:
    """The states on which commands decide."""
    states: dict[str, State] = defaultdict(dict)
    for event in sorted(events, key=lambda each: (each["partition"], each["offset"])):
        states[event["cart_id"]] = cart.apply(states[event["cart_id"]], event)
    return {(c, p): n for c, state in states.items() for p, n in state.get("products", {}).items()}


def naive_carts(events: list[Row]) -> dict[tuple[str, str], int]:
    carts: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    checked_out = set[str]()
    distinct = once(events, lambda each: each["cart_id"])
    for event in sorted(distinct, key=lambda each: (each["partition"], each["offset"])):
        name, product, verb = event["cart_id"], event["product"], event["verb"]
        if name in checked_out:
            continue
        if verb == "checked_out":
            checked_out.add(name)
        if product is None:
            continue
        amount = event["quantity"] or 0
        if verb == "added":
            carts[name][product] += amount
        elif verb == "quantity_changed":
            carts[name][product] = amount
        elif verb == "removed":
            carts[name][product] = 0
    return {(c, p): n for c, quantities in carts.items() for p, n in quantities.items() if n > 0}
