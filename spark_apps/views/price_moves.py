"""Price moves: how far each price rose and fell within five minutes at most, by hour.

A window begins with a trade, and contains the trades less than five minutes later. It belongs to the hour of its first
trade, so the trades of an hour's first five minutes also count for the hour before. Trades at the same time are in the
order of the log. An event that was sent again counts once.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from truelog import Group, Meaning, once

WINDOW = 5 * 60 * 1_000_000  # microseconds

# Hours whose largest rise or fall was at least five percent of the price before it.
LARGE = """
SELECT symbol, hour, rise, rise_from, rise_at, fall, fall_from, fall_at FROM {view}
WHERE (rise > 0 AND rise >= 0.05 * rise_from) OR (fall > 0 AND fall >= 0.05 * fall_from)
"""


def transform(price: DataFrame) -> DataFrame:
    """One row per trade and hour whose windows may contain it."""
    earlier = F.greatest(F.expr("event_time - INTERVAL 5 MINUTES"), F.expr("TIMESTAMP '0001-01-01'"))
    hours = F.array_distinct(F.array(_hour(F.col("event_time")), _hour(earlier)))
    at = F.col("event_time").alias("at")
    return price.select("symbol", F.explode(hours).alias("hour"), at, "price", "event_id")


def fold(trades: DataFrame) -> DataFrame:
    """The trades of some symbols and hours → the largest moves of each symbol and hour."""
    group = Window.partitionBy("symbol", "hour")
    later = group.orderBy(F.unix_micros("at")).rangeBetween(1, WINDOW - 1)
    same_time = Window.partitionBy("symbol", "hour", "at").orderBy("topic", "partition", "offset")
    at_once = same_time.rowsBetween(Window.currentRow, Window.unboundedFollowing)
    highest = F.greatest(F.max("price").over(later), F.max("price").over(at_once))
    lowest = F.least(F.min("price").over(later), F.min("price").over(at_once))
    rise, fall = (highest - F.col("price")).alias("rise"), (F.col("price") - lowest).alias("fall")
    begun = _hour(F.col("at")) == F.col("hour")
    moves = once(trades, "symbol", "hour").select("*", rise, fall).where(begun)
    return moves.groupBy("symbol", "hour").agg(
        *(each for name in ("rise", "fall") for each in _largest(name)), F.count("*").alias("trades")
    )


def _largest(move: str) -> list[Column]:
    """The largest move. Of several, the first counts."""
    place = (-F.unix_micros("at")).alias("earliest"), -F.col("partition"), -F.col("offset")
    largest = F.max(F.struct(move, *place, "price"))
    began = F.timestamp_micros(-largest["earliest"])
    return [largest[move].alias(move), largest["price"].alias(f"{move}_from"), began.alias(f"{move}_at")]


def _hour(time: Column) -> Column:
    return F.date_trunc("hour", time)


VIEW = Group(
    reads=("price",),
    transform=transform,
    by=("symbol", "hour"),
    inputs=("at", "price", "event_id"),
    fold=fold,
    key=("symbol", "hour"),
    values=("rise", "rise_from", "rise_at", "fall", "fall_from", "fall_at", "trades"),
    most=20_000,
    publish=True,  # for notifications of large moves
    present={"large": LARGE},
    checks=("rise >= 0", "fall >= 0", "trades > 0"),
    meanings={
        "large": Meaning("the hours in which a price moved by five percent or more within five minutes"),
        "inputs": Meaning(
            "trades, by symbol and hour",
            {"at": "time of the trade, by corrected event time", "price": "price in the currency's smallest unit"},
        ),
    },
    columns={
        "symbol": "what was traded",
        "hour": "hour of the windows' first trades",
        "rise": "largest rise within five minutes, in the currency's smallest unit",
        "rise_from": "price before the rise",
        "rise_at": "time of the trade before the rise, by corrected event time",
        "fall": "largest fall within five minutes",
        "fall_from": "price before the fall",
        "fall_at": "time of the trade before the fall",
        "trades": "trades of the hour",
    },
    owner="trading",
    version=3,
)
