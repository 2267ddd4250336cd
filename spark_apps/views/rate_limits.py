"""Rate limits: for each address, the policy and the block that are in force.

The last event in the order of the log counts, whatever its time says, so that a wrong clock cannot make a decision
permanent. An incomplete policy changes nothing, and an event that was sent again within an hour counts once, so that an
old decision does not come back. Whether a block has ended depends on the time of the question.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from truelog import Latest, View, latest


def transform(rate_policy: DataFrame, block: DataFrame) -> DataFrame:
    """One row per event: the address, with its policy or its block, or that it has none."""
    is_whole = F.col("max_requests").isNotNull() & (F.col("window_seconds") % 10 == 0)
    is_decision = ((F.col("verb") == "set") & is_whole) | (F.col("verb") == "removed")
    policies = rate_policy.where(is_decision).select(
        "address",
        latest(
            "offset",
            deleted=F.col("verb") == "removed",
            max_requests="max_requests",
            window_seconds="window_seconds",
        ).alias("policy"),
    )
    blocks = block.where(F.col("verb").isin("blocked", "unblocked")).select(
        "address",
        latest(
            "offset",
            deleted=F.col("verb") == "unblocked",
            blocked_at="event_time",
            blocked_until="until",
            reason="reason",
        ).alias("block"),
    )
    return policies.unionByName(blocks, allowMissingColumns=True)


VIEW = View(
    reads=("rate_policy", "block"),
    transform=transform,
    key=("address",),
    measures={"policy": Latest(), "block": Latest()},
    dedupe="1 hour",
    owner="security",
    version=2,
    columns={
        "address": "IPv4 or IPv6 address, or `all` for every address without its own policy",
        "max_requests": "requests that the address may make in a window; NULL if it has no policy of its own",
        "window_seconds": "length of the window in seconds",
        "blocked_at": "when the address was blocked, by corrected event time; NULL if it is not blocked",
        "blocked_until": "when the block ends by itself; NULL if only a person ends it",
        "reason": "why the address is blocked",
    },
)
