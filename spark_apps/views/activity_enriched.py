"""Activity with the profile as it was then: each tweet, with the name that its author had when posting it.

A profile change that arrives late corrects the tweets after it, up to the next change. The same events give the same
rows, in whichever order they arrive.
"""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from truelog import Group, Meaning, once

ORDER = ("at", "topic", "partition", "offset")

PER_NAME = """
SELECT person_id, profile_version, name, count(*) AS tweets, min(at) AS first_at, max(at) AS last_at
FROM {view} GROUP BY person_id, profile_version, name
"""


def transform(profile: DataFrame, tweet: DataFrame) -> DataFrame:
    """One row per event: a change of a profile, or a tweet, which has a `tweet_id`."""
    at, nothing = F.col("event_time").alias("at"), F.lit(None).cast("string")
    name = F.when(F.col("verb") == "changed", F.col("name")).alias("name")
    changes = profile.where(F.col("verb").isin("changed", "closed")).select(
        "person_id", "event_id", at, name, nothing.alias("tweet_id")
    )
    tweets = tweet.where("verb = 'posted'").select(
        F.col("author_id").alias("person_id"), "event_id", at, nothing.alias("name"), "tweet_id"
    )
    return changes.unionByName(tweets)


def fold(events: DataFrame) -> DataFrame:
    """The events of some people → one row for each tweet. An event that was sent twice counts once."""
    first = once(events, "person_id", order=ORDER)
    is_change = F.col("tweet_id").isNull()
    person = Window.partitionBy("person_id").orderBy(*ORDER)
    versions = first.select("*", F.sum(is_change.cast("int")).over(person).alias("profile_version"))
    version = Window.partitionBy("person_id", "profile_version").orderBy(*ORDER)
    named = versions.withColumn("name", F.first("name").over(version)).where(~is_change)
    return named.select("person_id", "event_id", "tweet_id", "at", "profile_version", "name")


VIEW = Group(
    reads=("profile", "tweet"),
    transform=transform,
    by=("person_id",),
    inputs=("at", "name", "event_id", "tweet_id"),
    fold=fold,
    key=("person_id", "event_id"),
    values=("tweet_id", "at", "profile_version", "name"),
    present={"per_name": PER_NAME},
    checks=("profile_version >= 0",),
    meanings={
        "per_name": Meaning(
            "how many tweets each person sent under each version of the profile",
            {
                "tweets": "tweets of the person under this version",
                "first_at": "time of the first of them",
                "last_at": "time of the last of them",
            },
        ),
        "inputs": Meaning(
            "changes of profiles and tweets, by person",
            {
                "at": "time of the event, by corrected event time",
                "name": "the name after the change; NULL for a tweet",
                "tweet_id": "the site's id for the tweet; NULL for a change",
            },
        ),
    },
    columns={
        "person_id": "the tweet's author",
        "event_id": "the id of the event",
        "tweet_id": "the site's id for the tweet",
        "at": "time of the tweet, by corrected event time",
        "profile_version": "number of the author's profile changes until then; 0 before the first",
        "name": "the author's name then; NULL if the profile was closed or unknown",
    },
    owner="social",
    version=2,
)
