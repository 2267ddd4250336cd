"""Views of clicks that several test files share: a Group, a view without copies, and a Join."""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from truelog import Group, Join, Latest, Match, Sum, Totals, View, latest

MOST = 4


def _spent(click: DataFrame) -> DataFrame:
    return click.select("url", F.col("search_id").cast("int").alias("spent"))


def above_average(inputs: DataFrame) -> DataFrame:
    """The amounts that are not below the mean of their URL: each further click may remove and add rows."""
    url = Window.partitionBy("url")
    mean = F.sum("spent").over(url) / F.count("*").over(url)
    chosen = inputs.select("url", "spent", mean.cast("decimal(20,4)").alias("mean")).where("spent >= mean")
    return chosen.groupBy("url", "spent").agg(F.count("*").alias("clicks"))


ABOVE = Group(
    reads=("click",),
    transform=_spent,
    by=("url",),
    inputs=("spent",),
    fold=above_average,
    key=("url", "spent"),
    values=("clicks",),
    most=MOST,
    publish=True,
)


ONCE = View(reads=("click",), transform=_spent, key=("url",), measures={"spent": Sum()}, dedupe="1 minute")


POPULAR = 2  # an author with more followers has no entries in timelines


def _side(kind: str, *columns: str) -> View:
    """The clicks whose URL is "kind:first:second". A `search_id` of 0 deletes the row."""

    def transform(click: DataFrame) -> DataFrame:
        parts = F.split("url", ":")
        selected = click.where(parts[0] == kind).select("*", parts[1].alias("one"), parts[2].alias("two"))
        first, second = columns
        values = {second: F.col("two")} if kind == "tweet" else {}
        order = latest("event_time", deleted=F.col("search_id") == "0", **values).alias("last")
        keys = [F.col("one").alias(first)] + ([] if values else [F.col("two").alias(second)])
        return selected.select(*keys, order)

    key = columns[:1] if kind == "tweet" else columns
    return View(reads=("click",), transform=transform, key=key, measures={"last": Latest()})


TIMELINE = Join(
    sides={"follows": _side("follow", "follower", "followee"), "tweets": _side("tweet", "tweet", "author")},
    totals={
        "authors": Totals(
            key=("author",), counts={"followers": Match(("follows",), key={"author": "follows.followee"})}
        )
    },
    key=("reader", "tweet"),
    counts={
        "entries": Match(
            ("tweets", "follows", "authors"),
            on=(("tweets.author", "follows.followee"), ("tweets.author", "authors.author")),
            where=(("authors.followers", "<=", POPULAR),),
            key={"reader": "follows.follower", "tweet": "tweets.tweet"},
        )
    },
    publish=True,
)


def _sent(click: DataFrame) -> DataFrame:
    """The clicks whose URL is "thing:person". A `search_id` of 0 deletes the thing."""
    parts = F.split("url", ":")
    return click.select(
        "*", parts[0].alias("thing"), parts[1].alias("person"), (F.col("search_id") == "0").alias("ends")
    )


def _things(click: DataFrame) -> DataFrame:
    return _sent(click).select("thing", "person", latest("event_time", deleted=F.col("ends")).alias("last"))


def _owners(click: DataFrame) -> DataFrame:
    return _sent(click).where("NOT ends").select("thing", latest(-F.col("offset"), owner="person").alias("first"))


_BY_OWNER = ("things.person", "owners.owner")
OWNED = Join(
    sides={
        "things": View(reads=("click",), transform=_things, key=("thing", "person"), measures={"last": Latest()}),
        "owners": View(reads=("click",), transform=_owners, key=("thing",), measures={"first": Latest()}),
    },
    key=("thing",),
    counts={
        "things": Match(
            ("things", "owners"),
            on=(("things.thing", "owners.thing"), _BY_OWNER),
            owned=(_BY_OWNER,),
            key={"thing": "things.thing"},
        )
    },
)
