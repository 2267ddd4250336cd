"""Products that were bought by the same customers: what is in a cart at its check-out counts, and nothing else."""

import json
from collections import Counter, defaultdict
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

from tests.beds.lab import Lab
from tests.laws.events import Record
from tests.views.examples import Relations, Row, Rows, Sent, example, examples, sent
from tests.views.generated import logs_and_relations, without_copies
from tests.views.ways import Reader
from truelog import View
from truelog.traffic.community import Community


def changed(verb: str, product: str | None, cart: str = "c1", visitor: str = "ann", **fields: Any) -> Sent:
    return sent("cart_event", verb=verb, product=product, cart_id=cart, visitor_id=visitor, **fields)


def bought(cart: str, visitor: str, *products: str) -> list[Sent]:
    added = [changed("added", product, cart, visitor, quantity=1) for product in products]
    return [*added, changed("checked_out", None, cart, visitor)]


def pairs(rows: list[Row]) -> dict[tuple[str, str], int]:
    """The customers of two different products, each pair in one order."""
    found = {(row["product"], row["also"]): row["customers"] for row in rows}
    assert all(found[also, product] == n for (product, also), n in found.items())
    return {(product, also): n for (product, also), n in found.items() if product < also}


THREE_CUSTOMERS = [
    *bought("c1", "ann", "lamp", "rug"),
    *bought("c2", "bob", "lamp", "rug", "vase"),
    *bought("c3", "eve", "lamp"),
]


@example(THREE_CUSTOMERS)
def test_two_products_count_the_customers_who_bought_both(rows: Rows) -> None:
    assert pairs(rows) == {("lamp", "rug"): 2, ("lamp", "vase"): 1, ("rug", "vase"): 1}
    alone = {row["product"]: row["customers"] for row in rows if row["product"] == row["also"]}
    assert alone == {"lamp": 3, "rug": 2, "vase": 1}


@example([*bought("c1", "ann", "lamp"), *bought("c2", "ann", "rug", "lamp")])
def test_what_a_customer_bought_in_two_carts_counts_together_and_once(rows: Rows) -> None:
    assert pairs(rows) == {("lamp", "rug"): 1}


@example([changed("added", "lamp", quantity=1), changed("added", "rug", quantity=1)])
def test_an_open_cart_does_not_count(rows: Rows) -> None:
    assert rows == []


ONE_OF_THREE_IS_LEFT = [
    *(changed("added", product, quantity=1) for product in ("lamp", "rug", "vase")),
    *(changed("removed", "rug"), changed("quantity_changed", "vase", quantity=0)),
]


@examples(
    {
        "removed": ([*ONE_OF_THREE_IS_LEFT, changed("checked_out", None)], {}),
        "nothing added": (
            [*ONE_OF_THREE_IS_LEFT, changed("added", "rug", quantity=0), changed("checked_out", None)],
            {},
        ),
        "added again": (
            [*ONE_OF_THREE_IS_LEFT, changed("added", "rug", quantity=2), changed("checked_out", None)],
            {("lamp", "rug"): 1},
        ),
    },
    in_order=True,
)
def test_a_removed_product_does_not_count(rows: Rows, expected: dict[tuple[str, str], int]) -> None:
    assert pairs(rows) == expected


@example(THREE_CUSTOMERS)
def test_the_products_that_most_customers_of_a_product_also_bought(relations: Relations) -> None:
    found = [row for row in relations["recommended"] if row["product"] == "lamp"]
    shown = [(row["place"], row["also"], row["customers"], float(row["percent"])) for row in found]
    assert shown == [(1, "rug", 2, 66.7), (2, "vase", 1, 33.3)]


def test_generated_logs_give_the_pairs_of_a_naive_loop(lab: Lab, name: str, view: View) -> None:
    different = 0
    for events, found in logs_and_relations(lab, name, view):
        expected = naive_pairs([*without_copies(view, events)])
        assert {(row["product"], row["also"]): row["customers"] for row in found[None]} == expected
        different += sum(product != also for product, also in expected)
    assert different > 4, "the logs hold too few check-outs"


def test_the_traffic_of_many_carts_gives_the_pairs_of_a_naive_loop(lab: Lab, name: str, view: View) -> None:
    """A few products are in many carts, and every customer checks out several carts. The stream has five batches."""
    community, now = Community(Random(1)), datetime(2026, 3, 1, tzinfo=UTC)
    records = (community.record(now + timedelta(seconds=n)) for n in range(10_000))
    carts = [each for each in records if each.topic == "cart_event"]
    log = [Record("cart_event", 0, each.value, n * 5 // len(carts)) for n, each in enumerate(carts)]
    lab.compare_all(name, view, [log])
    rows = Reader(lab, name, view)(0, "_streamed")[None]

    fields = ("cart_id", "visitor_id", "verb", "product", "quantity")
    sent_events = (dict.fromkeys(fields) | json.loads(each.value) for each in carts)
    events = [each | {"offset": n, "partition": 0} for n, each in enumerate(sent_events)]
    assert {(row["product"], row["also"]): row["customers"] for row in rows} == naive_pairs(events)
    assert max(row["customers"] for row in rows if row["product"] != row["also"]) > 10


def naive_pairs(events: list[Row]) -> Counter[tuple[str, str]]:
    last, customers = dict[tuple[str, str], Row](), dict[str, str]()
    for event in sorted(events, key=lambda each: (each["offset"], each["partition"])):
        if event["verb"] == "checked_out":
            customers[event["cart_id"]] = event["visitor_id"]
        elif event["product"] is not None and (event["verb"] != "added" or event["quantity"]):
            last[event["cart_id"], event["product"]] = event
    products = defaultdict[str, set[str]](set)
    for (cart, product), event in last.items():
        is_out = event["verb"] == "removed" or (event["verb"], event["quantity"]) == ("quantity_changed", 0)
        if cart in customers and not is_out:
            products[customers[cart]].add(product)
    return Counter((one, other) for each in products.values() for one in each for other in each)
