"""People who bought a product also bought: how many customers bought two products.

A customer bought a product if a cart that the customer checked out has the product. A cart has a product if the last
event of the product in the cart, by the order of the log, neither removes it nor sets its quantity to zero. To add no
items changes nothing. What a customer bought in different carts counts together, and several purchases of a product
count once. Unlike in `cart`, an event after the check-out still counts. An event that was sent again within an hour
changes nothing.

A customer with n products has n * n rows in the match, so the view is built once a day instead of with each batch.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from truelog import Join, Latest, Match, Meaning, Totals, View, latest

# The ten products that most customers of a product also bought, and their share of the product's customers.
RECOMMENDED = """
SELECT product, place, also, customers, percent FROM (
    SELECT a.product, a.also, a.customers, round(100.0 * a.customers / p.customers, 1) AS percent,
        row_number() OVER (PARTITION BY a.product ORDER BY a.customers DESC, a.also) AS place
    FROM {view} AS a JOIN {view} AS p ON p.product = a.product AND p.also = a.product
    WHERE a.also <> a.product
) AS ranked WHERE place <= 10
"""


def in_carts(cart_event: DataFrame) -> DataFrame:
    """One row per event of a product: the product is in the cart, or no longer is."""
    some = F.coalesce(F.col("quantity") > 0, F.lit(False))
    is_out = (F.col("verb") == "removed") | ((F.col("verb") == "quantity_changed") & ~some)
    of_product = cart_event.where(is_out | (F.col("verb").isin("added", "quantity_changed") & some))
    return of_product.select("cart_id", "product", latest("offset", deleted=is_out).alias("last"))


def checkouts(cart_event: DataFrame) -> DataFrame:
    """One row per check-out: the customer."""
    last = latest("offset", visitor_id="visitor_id")
    return cart_event.where(F.col("verb") == "checked_out").select("cart_id", last.alias("last"))


VIEW = Join(
    sides={
        "in_carts": View(
            reads=("cart_event",), transform=in_carts, key=("cart_id", "product"), measures={"last": Latest()}
        ),
        "checkouts": View(
            reads=("cart_event",),
            transform=checkouts,
            key=("cart_id",),
            measures={"last": Latest()},
            columns={"visitor_id": "the customer"},
        ),
    },
    totals={
        "bought": Totals(
            key=("visitor_id", "product"),
            counts={
                "carts": Match(
                    ("checkouts", "in_carts"),
                    on=(("checkouts.cart_id", "in_carts.cart_id"),),
                    key={"visitor_id": "checkouts.visitor_id", "product": "in_carts.product"},
                )
            },
            columns={"carts": "carts that the customer checked out with the product"},
        )
    },
    key=("product", "also"),
    counts={
        "customers": Match(
            ("bought", "others"),
            aliases={"others": "bought"},
            on=(("bought.visitor_id", "others.visitor_id"),),
            key={"product": "bought.product", "also": "others.product"},
        )
    },
    dedupe="1 hour",
    present={"recommended": RECOMMENDED},
    checks=("customers > 0",),
    meanings={
        "recommended": Meaning(
            "the ten products that most customers of a product also bought",
            {
                "place": "rank of `also` for the product, from 1",
                "percent": "share of the product's customers who also bought it, in percent",
            },
        ),
        "in_carts": Meaning("which products are in each cart", {"cart_id": "the site's id for the cart"}),
        "checkouts": Meaning(
            "the customer of each cart that was checked out", {"cart_id": "the site's id for the cart"}
        ),
        "bought": Meaning("which products each customer bought", {"visitor_id": "the customer"}),
    },
    columns={
        "product": "a product",
        "also": "a product that the same customers bought; the product itself in one row, which has all its customers",
        "customers": "customers who bought both",
    },
    batch_only=True,
    owner="shop",
    version=3,
)
