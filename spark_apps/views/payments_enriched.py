"""Payments with the customer as they were then: a stream of events enriched from a captured table.

A change of the table that is captured late corrects the payments after it, up to the next change. The customers before
capture began are as the first snapshot found them, so a payment before the first snapshot has no customer.
"""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from truelog import Group, Meaning, once

ORDER = ("at", "topic", "partition", "offset")

PER_CITY = """
SELECT city, country, count(*) FILTER (WHERE verb = 'succeeded') AS payments,
    count(*) FILTER (WHERE verb = 'failed') AS failures,
    coalesce(sum(amount) FILTER (WHERE verb = 'succeeded'), 0) AS amount
FROM {view} GROUP BY city, country
"""


def transform(payment: DataFrame, customers: DataFrame) -> DataFrame:
    """One row per event: a change of a customer's row, or a payment, which has a `verb`."""
    at, text = F.col("event_time").alias("at"), F.lit(None).cast("string")
    is_there = F.col("source_operation") != "deleted"
    changes = customers.where("id IS NOT NULL").select(
        F.col("id").cast("string").alias("customer_id"),
        *("event_id", at),
        *(F.when(is_there, F.col(name)).alias(name) for name in ("name", "city")),
        *(text.alias(name) for name in ("verb", "order_id", "country")),
        F.lit(None).cast("bigint").alias("amount"),
    )
    payments = payment.where(F.col("verb").isin("failed", "succeeded")).select(
        *("customer_id", "event_id", at),
        *(text.alias(name) for name in ("name", "city")),
        *("verb", "order_id", "country", "amount"),
    )
    return changes.unionByName(payments)


def fold(events: DataFrame) -> DataFrame:
    """The events of some customers → one row for each payment. An event that was sent twice counts once."""
    first = once(events, "customer_id", order=ORDER)
    customer = Window.partitionBy("customer_id").orderBy(*ORDER)
    is_change = F.col("verb").isNull()
    versions = first.select("*", F.sum(is_change.cast("int")).over(customer).alias("customer_version"))
    version = Window.partitionBy("customer_id", "customer_version").orderBy(*ORDER)
    named = versions.withColumns({name: F.first(name).over(version) for name in ("name", "city")}).where(~is_change)
    return named.select(*VIEW.key, *VIEW.values)


VIEW = Group(
    reads=("payment", "customers"),
    transform=transform,
    by=("customer_id",),
    inputs=("at", "event_id", "name", "city", "verb", "order_id", "country", "amount"),
    fold=fold,
    key=("customer_id", "event_id"),
    values=("order_id", "at", "verb", "country", "amount", "customer_version", "name", "city"),
    present={"per_city": PER_CITY},
    checks=("customer_version >= 0",),
    meanings={
        "per_city": Meaning(
            "payments by the customer's city and the payment's country",
            {
                "payments": "payments that succeeded",
                "failures": "payments that failed",
                "amount": "sum of the payments that succeeded, in the currency's smallest unit",
            },
        ),
        "inputs": Meaning(
            "payments and changes of customers, by customer",
            {
                "at": "time of the payment or of the change",
                "verb": "of a payment: `failed` or `succeeded`",
                "name": "the name after the change; NULL for a payment",
                "city": "the city after the change; NULL for a payment",
            },
        ),
    },
    columns={
        "customer_id": "who paid; the primary key of the table of customers, as text",
        "event_id": "the id of the payment's event",
        "order_id": "the order's id",
        "at": "time of the payment, by corrected event time",
        "verb": "`failed` or `succeeded`",
        "country": "the country of the payment",
        "amount": "the amount in the currency's smallest unit",
        "customer_version": "number of the changes of the customer's row until then; 0 before the first",
        "name": "the customer's name then; NULL if the table had no such row",
        "city": "where the customer lived then; NULL if the table had no such row",
    },
    owner="shop",
)
