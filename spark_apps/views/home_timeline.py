"""Home timelines: the tweets of the people that a reader follows.

Each tweet is added to the timelines of its author's followers when it is posted, so that reading is fast. For an author
with many followers this would be slow, so the tweets of a popular author are in no timeline. The relation `newest` adds
them when a reader queries it. An author becomes popular, or stops being popular, at an exact position of the log.

Timelines contain ids. The relation looks up names, photos and texts, so a change shows at once.

A tweet belongs to the author of the first event in the log that posts it. Events of other people about this tweet
change nothing, and `truelog explain` shows them as refused.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from truelog import Join, Latest, Match, Meaning, Totals, View, latest

POPULAR = 10_000  # more followers make an author popular

# The 100 newest tweets for each reader: from the timeline, and from the popular authors that the reader follows.
NEWEST = """
SELECT r.reader_id, e.tweeted_at, e.tweet_id, t.author_id, p.name AS author, p.photo_url AS photo, t.text
FROM (SELECT DISTINCT follower_id AS reader_id FROM {{follows}}) AS r
CROSS JOIN LATERAL (
    SELECT * FROM (
        (
            SELECT v.tweeted_at, v.tweet_id FROM {{view}} AS v WHERE v.reader_id = r.reader_id
            ORDER BY v.tweeted_at DESC, v.tweet_id DESC LIMIT 100
        ) UNION ALL (
            SELECT w.tweeted_at, w.tweet_id FROM {{follows}} AS f
            JOIN {{authors}} AS a ON a.author_id = f.followee_id AND a.followers > {popular}
            CROSS JOIN LATERAL (
                SELECT tweeted_at, tweet_id FROM {{tweets}} AS t WHERE t.author_id = a.author_id AND EXISTS (
                    SELECT FROM {{owners}} AS o WHERE (o.tweet_id, o.author_id) = (t.tweet_id, t.author_id)
                ) ORDER BY t.author_id DESC, t.tweeted_at DESC, t.tweet_id DESC LIMIT 100
            ) AS w
            WHERE f.follower_id = r.reader_id
            ORDER BY w.tweeted_at DESC, w.tweet_id DESC LIMIT 100
        )
    ) AS found ORDER BY tweeted_at DESC, tweet_id DESC LIMIT 100
) AS e
JOIN {{owners}} AS o ON o.tweet_id = e.tweet_id
JOIN {{tweets}} AS t ON (t.tweet_id, t.author_id) = (o.tweet_id, o.author_id)
LEFT JOIN {{profiles}} AS p ON p.person_id = t.author_id
"""


def follows(follow: DataFrame) -> DataFrame:
    """One row per event: who follows whom, or no longer does."""
    last = latest("event_time", deleted=F.col("verb") == "unfollowed")
    known = follow.where(F.col("verb").isin("followed", "unfollowed"))
    return known.select("follower_id", "followee_id", last.alias("last"))


def tweets(tweet: DataFrame) -> DataFrame:
    """One row per event: the tweet as its sender wants it, or that it is deleted."""
    last = latest("event_time", deleted=F.col("verb") == "deleted", tweeted_at="event_time", text="text")
    return tweet.where(F.col("verb").isin("posted", "deleted")).select("tweet_id", "author_id", last.alias("last"))


def owners(tweet: DataFrame) -> DataFrame:
    """One row per event that posts a tweet: its author. The event with the smallest offset counts."""
    first = latest(-F.col("offset"), author_id="author_id")
    return tweet.where(F.col("verb") == "posted").select("tweet_id", first.alias("first"))


def profiles(profile: DataFrame) -> DataFrame:
    """One row per event: the name and the photo, or that the profile is closed."""
    last = latest("event_time", deleted=F.col("verb") == "closed", name="name", photo_url="photo_url")
    return profile.where(F.col("verb").isin("changed", "closed")).select("person_id", last.alias("last"))


FOLLOWS = View(
    reads=("follow",),
    transform=follows,
    key=("follower_id", "followee_id"),
    measures={"last": Latest()},
    columns={"follower_id": "who follows", "followee_id": "who is followed"},
)

TWEETS = View(
    reads=("tweet",),
    transform=tweets,
    key=("tweet_id", "author_id"),
    measures={"last": Latest()},
    columns={
        "tweet_id": "the site's id for the tweet",
        "author_id": "who sent the events; only the owner's row counts",
        "tweeted_at": "time of the tweet's last event, by corrected event time",
        "text": "what the tweet says",
    },
    indexes=(("author_id", "tweeted_at", "tweet_id"),),
)

OWNERS = View(
    reads=("tweet",),
    transform=owners,
    key=("tweet_id",),
    measures={"first": Latest()},
    columns={"tweet_id": "the site's id for the tweet", "author_id": "the author of the event that first posted it"},
)

PROFILES = View(
    reads=("profile",),
    transform=profiles,
    key=("person_id",),
    measures={"last": Latest()},
    columns={"person_id": "the person", "name": "the name that others see", "photo_url": "URL of the photo"},
)

AUTHORS = Totals(
    key=("author_id",),
    counts={"followers": Match(("follows",), key={"author_id": "follows.followee_id"})},
    columns={"author_id": "a person with followers", "followers": "the number of followers"},
)


MEANINGS = {
    "newest": Meaning(
        "the 100 newest tweets for each reader, with the present names and texts",
        {
            "author_id": "who tweeted",
            "author": "the author's present name",
            "photo": "URL of the author's present photo",
            "text": "what the tweet says",
        },
    ),
    "follows": Meaning("who follows whom"),
    "tweets": Meaning("the tweets, by the sender of their events"),
    "owners": Meaning("whom each tweet belongs to"),
    "profiles": Meaning("names and photos of people"),
    "authors": Meaning("how many followers each author has"),
}

BY_OWNER = ("tweets.author_id", "owners.author_id")


def timeline(popular: int) -> Join:
    """The declaration of the view; an author with more than `popular` followers is popular."""
    entries = Match(
        ("tweets", "owners", "follows", "authors"),
        on=(
            ("tweets.tweet_id", "owners.tweet_id"),
            BY_OWNER,
            ("tweets.author_id", "follows.followee_id"),
            ("tweets.author_id", "authors.author_id"),
        ),
        owned=(BY_OWNER,),
        where=(("authors.followers", "<=", popular),),
        key={"reader_id": "follows.follower_id", "tweeted_at": "tweets.tweeted_at", "tweet_id": "tweets.tweet_id"},
    )
    return Join(
        sides={"follows": FOLLOWS, "tweets": TWEETS, "owners": OWNERS, "profiles": PROFILES},
        totals={"authors": AUTHORS},
        key=("reader_id", "tweeted_at", "tweet_id"),
        counts={"entries": entries},
        present={"newest": NEWEST.format(popular=popular)},
        checks=("entries = 1",),
        publish=True,
        meanings=MEANINGS,
        columns={
            "reader_id": "who follows the tweet's author",
            "tweeted_at": "time of the tweet, by corrected event time",
            "tweet_id": "the site's id for the tweet",
            "entries": "always 1",
        },
        owner="social",
        version=2,
    )


VIEW = timeline(POPULAR)
