"""Home timelines: the tweets of the people that a reader follows.

Each tweet is added to the timelines of its author's followers when it is posted, so that reading is fast. For an author
with many followers this would be slow, so the tweets of a popular author are in no timeline. The relation `newest` adds
them when a reader queries it. An author becomes popular, or stops being popular, at an exact position of the log.

Timelines contain ids. The relation looks up names, photos and texts, so a change shows at once.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from truelog import Join, Latest, Match, Totals, View, latest

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
                SELECT tweeted_at, tweet_id FROM {{tweets}} AS t WHERE t.author_id = a.author_id
                ORDER BY t.author_id DESC, t.tweeted_at DESC, t.tweet_id DESC LIMIT 100
            ) AS w
            WHERE f.follower_id = r.reader_id
            ORDER BY w.tweeted_at DESC, w.tweet_id DESC LIMIT 100
        )
    ) AS found ORDER BY tweeted_at DESC, tweet_id DESC LIMIT 100
) AS e
JOIN {{tweets}} AS t ON t.tweet_id = e.tweet_id
LEFT JOIN {{profiles}} AS p ON p.person_id = t.author_id
"""


def follows(follow: DataFrame) -> DataFrame:
    """One row per event: who follows whom, or no longer does."""
    last = latest("event_time", deleted=F.col("verb") == "unfollowed")
    return follow.select("follower_id", "followee_id", last.alias("last"))


def tweets(tweet: DataFrame) -> DataFrame:
    """One row per event: the tweet, or that it is deleted."""
    values = {"author_id": "author_id", "tweeted_at": "event_time", "text": "text"}
    return tweet.select("tweet_id", latest("event_time", deleted=F.col("verb") == "deleted", **values).alias("last"))


def profiles(profile: DataFrame) -> DataFrame:
    """One row per event: the name and the photo, or that the profile is closed."""
    last = latest("event_time", deleted=F.col("verb") == "closed", name="name", photo_url="photo_url")
    return profile.select("person_id", last.alias("last"))


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
    key=("tweet_id",),
    measures={"last": Latest()},
    columns={
        "tweet_id": "the site's id for the tweet",
        "author_id": "who wrote the tweet",
        "tweeted_at": "time of the tweet's last event, by corrected event time",
        "text": "what the tweet says",
    },
    indexes=(("author_id", "tweeted_at", "tweet_id"),),
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


def timeline(popular: int) -> Join:
    """The declaration of the view; an author with more than `popular` followers is popular."""
    entries = Match(
        ("tweets", "follows", "authors"),
        on=(("tweets.author_id", "follows.followee_id"), ("tweets.author_id", "authors.author_id")),
        where=(("authors.followers", "<=", popular),),
        key={"reader_id": "follows.follower_id", "tweeted_at": "tweets.tweeted_at", "tweet_id": "tweets.tweet_id"},
    )
    return Join(
        sides={"follows": FOLLOWS, "tweets": TWEETS, "profiles": PROFILES},
        totals={"authors": AUTHORS},
        key=("reader_id", "tweeted_at", "tweet_id"),
        counts={"entries": entries},
        present={"newest": NEWEST.format(popular=popular)},
        checks=("entries = 1",),
        publish=True,
        columns={
            "reader_id": "who follows the tweet's author",
            "tweeted_at": "time of the tweet, by corrected event time",
            "tweet_id": "the site's id for the tweet",
            "entries": "always 1",
        },
    )


VIEW = timeline(POPULAR)
