"""Shopping carts: the products that are in each cart, and when the cart was checked out.

All events of a cart are in one partition, so their offsets are their order. What comes after the first check-out
changes nothing. An event that was sent again counts once, however much later it arrives.
"""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from truelog import Group, Meaning, once

ORDER = ("topic", "partition", "offset")

OPEN = """
SELECT cart_id, count(*) AS products, sum(quantity)::bigint AS items, max(changed_at) AS changed_at
FROM {view} WHERE checked_out_at IS NULL GROUP BY cart_id
"""

# Every event of a cart once, in the order of `offset`.
HISTORY = """
SELECT cart_id, "offset", at, verb, product, quantity FROM (
    SELECT DISTINCT ON (cart_id, event_id) * FROM {inputs} ORDER BY cart_id, event_id, partition, "offset"
) AS first
"""


def transform(cart_event: DataFrame) -> DataFrame:
    """One row per event."""
    known = cart_event.where(F.col("verb").isin("added", "quantity_changed", "removed", "checked_out"))
    return known.select("cart_id", "verb", "product", "quantity", F.col("event_time").alias("at"), "event_id")


def fold(events: DataFrame) -> DataFrame:
    """The events of some carts → one row for each product that is in a cart."""
    cart, product = Window.partitionBy("cart_id"), Window.partitionBy("cart_id", "product")
    earlier = cart.orderBy(*ORDER).rowsBetween(Window.unboundedPreceding, -1)
    all_events = cart.orderBy(*ORDER).rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    is_checkout = F.col("verb") == "checked_out"
    checked_out_at = F.first(F.when(is_checkout, F.col("at")), ignorenulls=True).over(all_events)
    is_later = F.coalesce(F.max(is_checkout).over(earlier), F.lit(False))
    counted = once(events, "cart_id").select("*", is_later.alias("is_later"), checked_out_at.alias("checked_out_at"))
    changes = counted.where(~F.col("is_later") & F.col("product").isNotNull())
    # An event that sets the quantity begins a new run; the product's quantity is the sum over its last run.
    sets = F.col("verb").isin("quantity_changed", "removed").cast("int")
    runs = changes.select("*", F.sum(sets).over(product.orderBy(*ORDER)).alias("run"))
    last = runs.select("*", F.max("run").over(product).alias("last_run")).where("run = last_run")
    amount = F.when(F.col("verb").isin("added", "quantity_changed"), F.coalesce("quantity", F.lit(0))).otherwise(0)
    return (
        last.groupBy("cart_id", "product")
        .agg(
            F.sum(amount).alias("quantity"),
            F.max("at").alias("changed_at"),
            F.max("checked_out_at").alias("checked_out_at"),
        )
        .where("quantity > 0")
    )


VIEW = Group(
    reads=("cart_event",),
    transform=transform,
    by=("cart_id",),
    inputs=("verb", "product", "quantity", "at", "event_id"),
    fold=fold,
    key=("cart_id", "product"),
    values=("quantity", "changed_at", "checked_out_at"),
    present={"open": OPEN, "history": HISTORY},
    checks=("quantity > 0",),
    publish=True,
    meanings={
        "open": Meaning(
            "the carts that are not checked out",
            {
                "products": "products in the cart",
                "items": "items in the cart",
                "changed_at": "time of the last change, by corrected event time",
            },
        ),
        "history": Meaning(
            "every event of each cart once, in the order of partition and offset",
            {
                "verb": "what happened to the product, or to the cart",
                "quantity": "the quantity in the event",
                "at": "time of the event, by corrected event time",
            },
        ),
        "inputs": Meaning(
            "the events of each cart, with copies",
            {
                "verb": "what happened to the product, or to the cart",
                "quantity": "the quantity in the event",
                "at": "time of the event, by corrected event time",
            },
        ),
    },
    columns={
        "cart_id": "the site's id for the cart",
        "product": "a product that is in the cart",
        "quantity": "items of the product",
        "changed_at": "time of the last event that counts for the product's quantity, by corrected event time",
        "checked_out_at": "when the cart was checked out; NULL if it is open",
    },
    owner="shop",
    version=3,
)
