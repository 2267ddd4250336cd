"""Posts: how many people like, comment and share each post, its best comments, and which friends like it.

The counts change by the difference, so a like of a post with many likes costs as much as a like of any other post.
Names, photos and texts are looked up when a reader queries a relation, so a change shows at once.

A post, a comment or a share belongs to the person in the first event of the log that makes it. Events of other people
about it change nothing, and `truelog explain` shows them as refused.
"""

from collections.abc import Callable

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from truelog import Join, Latest, Match, Meaning, Totals, View, latest

# Each post with its author and its counts.
POSTS = """
SELECT v.post_id, p.author_id, a.name AS author, a.photo_url AS photo, p.posted_at, p.text,
    v.likes, v.comments, v.shares
FROM {view} AS v JOIN {post_owners} AS o ON o.post_id = v.post_id
JOIN {posts} AS p ON (p.post_id, p.author_id) = (o.post_id, o.author_id)
LEFT JOIN {profiles} AS a ON a.person_id = p.author_id
"""

# The four best comments of each post: by likes, then the newest, then by id.
TOP_COMMENTS = """
SELECT v.post_id, r.comment_id, r.likes, r.commented_at, c.author_id, a.name AS author, a.photo_url AS photo, c.text
FROM {view} AS v
CROSS JOIN LATERAL (
    SELECT comment_id, likes, commented_at FROM {ranking} AS r WHERE r.post_id = v.post_id
    ORDER BY r.likes DESC, r.commented_at DESC, r.comment_id DESC LIMIT 4
) AS r
JOIN {comment_owners} AS o ON o.comment_id = r.comment_id
JOIN {comments} AS c ON (c.comment_id, c.author_id) = (o.comment_id, o.author_id)
LEFT JOIN {profiles} AS a ON a.person_id = c.author_id
"""

# For each reader and post, the three friends who like the post and have the most friends in common with the reader.
CLOSEST_LIKERS = """
SELECT v.post_id, r.reader_id, l.liker_id, l.mutual_friends, a.name AS liker, a.photo_url AS photo
FROM {view} AS v
CROSS JOIN (SELECT DISTINCT person_id AS reader_id FROM {friends}) AS r
CROSS JOIN LATERAL (
    SELECT f.friend_id AS liker_id, coalesce(m.friends, 0) AS mutual_friends
    FROM {friends} AS f
    JOIN {likes} AS k ON k.target_id = v.post_id AND k.person_id = f.friend_id
    LEFT JOIN {mutual} AS m ON m.person_id = f.person_id AND m.friend_id = f.friend_id
    WHERE f.person_id = r.reader_id
    ORDER BY mutual_friends DESC, liker_id LIMIT 3
) AS l
LEFT JOIN {profiles} AS a ON a.person_id = l.liker_id
"""


def posts(post: DataFrame) -> DataFrame:
    """One row per event: the post as its sender wants it, or that it is deleted."""
    last = latest("event_time", deleted=F.col("verb") == "deleted", posted_at="event_time", text="text")
    return post.where(F.col("verb").isin("posted", "deleted")).select("post_id", "author_id", last.alias("last"))


def likes(like: DataFrame) -> DataFrame:
    """One row per event: who likes what, or no longer does."""
    last = latest("event_time", deleted=F.col("verb") == "unliked")
    return like.where(F.col("verb").isin("liked", "unliked")).select("target_id", "person_id", last.alias("last"))


def comments(comment: DataFrame) -> DataFrame:
    """One row per event: the comment as its sender wants it, or that it is deleted."""
    values = {"post_id": "post_id", "commented_at": "event_time", "text": "text"}
    last = latest("event_time", deleted=F.col("verb") == "deleted", **values)
    return comment.where(F.col("verb").isin("posted", "deleted")).select("comment_id", "author_id", last.alias("last"))


def shares(share: DataFrame) -> DataFrame:
    """One row per event: which post is shared, or that it no longer is."""
    last = latest("event_time", deleted=F.col("verb") == "unshared", post_id="post_id")
    return share.where(F.col("verb").isin("shared", "unshared")).select("share_id", "person_id", last.alias("last"))


def owners(thing: str, person: str, made: str) -> Callable[[DataFrame], DataFrame]:
    """The transform to one row per event that makes a thing: the person. The event with the smallest offset counts."""

    def transform(events: DataFrame) -> DataFrame:
        first = latest(-F.col("offset"), **{person: F.col(person)})
        return events.where(F.col("verb") == made).select(thing, first.alias("first"))

    return transform


def friends(friendship: DataFrame) -> DataFrame:
    """Two rows per event, one for each of the two people."""
    one = F.struct(F.col("person_id").alias("person"), F.col("friend_id").alias("friend"))
    other = F.struct(F.col("friend_id").alias("person"), F.col("person_id").alias("friend"))
    last = latest("event_time", deleted=F.col("verb") == "unfriended")
    known = friendship.where(F.col("verb").isin("friended", "unfriended"))
    both = known.where("person_id <> friend_id").select(
        F.explode(F.array(one, other)).alias("pair"), last.alias("last")
    )
    return both.select(F.col("pair.person").alias("person_id"), F.col("pair.friend").alias("friend_id"), "last")


def profiles(profile: DataFrame) -> DataFrame:
    """One row per event: the name and the photo, or that the profile is closed."""
    last = latest("event_time", deleted=F.col("verb") == "closed", name="name", photo_url="photo_url")
    return profile.where(F.col("verb").isin("changed", "closed")).select("person_id", last.alias("last"))


def _side(topic: str, transform: Callable[..., DataFrame], *key: str, **columns: str) -> View:
    return View(reads=(topic,), transform=transform, key=key, measures={"last": Latest()}, columns=columns)


def _owners(topic: str, thing: str, person: str, made: str) -> View:
    columns = {person: f"the person in the event that first {made} it"}
    transform = owners(thing, person, made)
    return View(reads=(topic,), transform=transform, key=(thing,), measures={"first": Latest()}, columns=columns)


SENDER = "who sent the events; only the owner's row counts"

SIDES = {
    "posts": _side("post", posts, "post_id", "author_id", author_id=SENDER, posted_at="time of the last event"),
    "post_owners": _owners("post", "post_id", "author_id", "posted"),
    "likes": _side("like", likes, "target_id", "person_id", target_id="a post or a comment", person_id="who likes it"),
    "comments": _side("comment", comments, "comment_id", "author_id", author_id=SENDER, post_id="the post"),
    "comment_owners": _owners("comment", "comment_id", "author_id", "posted"),
    "shares": _side("share", shares, "share_id", "person_id", person_id=SENDER, post_id="the post"),
    "share_owners": _owners("share", "share_id", "person_id", "shared"),
    "friends": _side("friendship", friends, "person_id", "friend_id", friend_id="each friend of the person"),
    "profiles": _side("profile", profiles, "person_id", name="the name that others see", photo_url="URL of the photo"),
}

POST_BY_OWNER = ("posts.author_id", "post_owners.author_id")
COMMENT_BY_OWNER = ("comments.author_id", "comment_owners.author_id")
SHARE_BY_OWNER = ("shares.person_id", "share_owners.person_id")
# The conditions under which the rows of a thing count.
POST = (("posts.post_id", "post_owners.post_id"), POST_BY_OWNER)
COMMENT = (("comments.comment_id", "comment_owners.comment_id"), COMMENT_BY_OWNER)
SHARE = (("shares.share_id", "share_owners.share_id"), SHARE_BY_OWNER)

OF_COMMENT = {
    "post_id": "comments.post_id",
    "commented_at": "comments.commented_at",
    "comment_id": "comments.comment_id",
}
RANKING = Totals(
    key=("post_id", "commented_at", "comment_id"),
    counts={
        "comments": Match(("comments", "comment_owners"), on=COMMENT, owned=(COMMENT_BY_OWNER,), key=OF_COMMENT),
        "likes": Match(
            ("comments", "comment_owners", "likes"),
            on=(*COMMENT, ("comments.comment_id", "likes.target_id")),
            owned=(COMMENT_BY_OWNER,),
            key=OF_COMMENT,
        ),
    },
    indexes=(("post_id", "likes", "commented_at", "comment_id"),),
)

MUTUAL = Totals(
    key=("person_id", "friend_id"),
    counts={
        "friends": Match(
            ("friends", "mine", "theirs"),
            aliases={"mine": "friends", "theirs": "friends"},
            on=(
                ("mine.person_id", "friends.person_id"),
                ("theirs.person_id", "friends.friend_id"),
                ("theirs.friend_id", "mine.friend_id"),
            ),
            key={"person_id": "friends.person_id", "friend_id": "friends.friend_id"},
        )
    },
)

OF_POST = {"post_id": "posts.post_id"}

VIEW = Join(
    sides=SIDES,
    totals={"ranking": RANKING, "mutual": MUTUAL},
    key=("post_id",),
    counts={
        "posts": Match(("posts", "post_owners"), on=POST, owned=(POST_BY_OWNER,), key=OF_POST),
        "likes": Match(
            ("posts", "post_owners", "likes"),
            on=(*POST, ("posts.post_id", "likes.target_id")),
            owned=(POST_BY_OWNER,),
            key=OF_POST,
        ),
        "comments": Match(
            ("posts", "post_owners", "comments", "comment_owners"),
            on=(*POST, ("posts.post_id", "comments.post_id"), *COMMENT),
            owned=(POST_BY_OWNER, COMMENT_BY_OWNER),
            key=OF_POST,
        ),
        "shares": Match(
            ("posts", "post_owners", "shares", "share_owners"),
            on=(*POST, ("posts.post_id", "shares.post_id"), *SHARE),
            owned=(POST_BY_OWNER, SHARE_BY_OWNER),
            key=OF_POST,
        ),
    },
    present={"summary": POSTS, "top_comments": TOP_COMMENTS, "closest_likers": CLOSEST_LIKERS},
    checks=("posts = 1", "likes >= 0", "comments >= 0", "shares >= 0"),
    meanings={
        "summary": Meaning(
            "each post with its author and its counts",
            {
                "author_id": "whose post it is",
                "author": "the author's present name",
                "photo": "URL of the author's present photo",
                "posted_at": "time of the post's last event, by corrected event time",
                "text": "what the post says",
            },
        ),
        "top_comments": Meaning(
            "the four best comments of each post",
            {
                "comment_id": "the site's id for the comment",
                "likes": "people who like the comment",
                "commented_at": "time of the comment's last event, by corrected event time",
                "author_id": "whose comment it is",
                "author": "the author's present name",
                "photo": "URL of the author's present photo",
                "text": "what the comment says",
            },
        ),
        "closest_likers": Meaning(
            "for each reader and post, the three friends who like it and share most friends with the reader",
            {
                "reader_id": "who reads",
                "liker_id": "a friend of the reader who likes the post",
                "liker": "the friend's present name",
                "photo": "URL of the friend's present photo",
                "mutual_friends": "friends that both have",
            },
        ),
        "posts": Meaning("the posts, by the sender of their events", {"text": "what the post says"}),
        "post_owners": Meaning("whom each post belongs to"),
        "likes": Meaning("who likes which post or comment"),
        "comments": Meaning(
            "the comments, by the sender of their events",
            {
                "comment_id": "the site's id for the comment",
                "commented_at": "time of the comment's last event, by corrected event time",
                "text": "what the comment says",
            },
        ),
        "comment_owners": Meaning("whom each comment belongs to", {"comment_id": "the site's id for the comment"}),
        "shares": Meaning(
            "the shares of posts, by the sender of their events", {"share_id": "the site's id for the share"}
        ),
        "share_owners": Meaning("whom each share belongs to", {"share_id": "the site's id for the share"}),
        "friends": Meaning("the friends of each person", {"person_id": "a person"}),
        "profiles": Meaning("names and photos of people", {"person_id": "the person"}),
        "ranking": Meaning(
            "the comments of each post with their likes",
            {
                "comment_id": "the site's id for the comment",
                "commented_at": "time of the comment's last event, by corrected event time",
                "comments": "always 1",
                "likes": "people who like the comment",
            },
        ),
        "mutual": Meaning(
            "how many friends two friends have in common",
            {"person_id": "a person", "friend_id": "a friend of the person", "friends": "friends that both have"},
        ),
    },
    columns={
        "post_id": "the site's id for the post",
        "posts": "always 1",
        "likes": "people who like the post",
        "comments": "comments on the post",
        "shares": "how often the post is shared",
    },
    owner="social",
    version=2,
)
