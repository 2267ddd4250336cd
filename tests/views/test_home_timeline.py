"""Home timelines: tweets of followed people, in any order of events, with and without popular authors."""

from collections import Counter
from typing import Any

from spark_apps.views.home_timeline import timeline
from tests.beds.lab import Lab
from tests.views.examples import Relations, Row, Rows, Sent, at, example, examples, sent
from tests.views.generated import last, logs_and_relations, of_owners
from tests.views.people import named
from truelog import View


def followed(reader: str, author: str, time: str = "10:00:00", verb: str = "followed") -> Sent:
    return sent("follow", follower_id=reader, followee_id=author, verb=verb, occurred_at=at(time))


def unfollowed(reader: str, author: str, time: str) -> Sent:
    return followed(reader, author, time, "unfollowed")


def tweeted(tweet: str, author: str, time: str = "10:01:00", text: str = "hello") -> Sent:
    return sent("tweet", tweet_id=tweet, author_id=author, verb="posted", text=text, occurred_at=at(time))


def deleted(tweet: str, author: str, time: str) -> Sent:
    return sent("tweet", tweet_id=tweet, author_id=author, verb="deleted", occurred_at=at(time))


def entries(rows: list[Row]) -> list[tuple[str, str]]:
    return [(row["reader_id"], row["tweet_id"]) for row in rows]


@example(
    [
        *(followed("ann", "bob"), followed("cid", "bob"), followed("ann", "eve")),
        *(tweeted("t1", "bob"), tweeted("t2", "eve", "10:02:00"), tweeted("t3", "dan")),
    ]
)
def test_a_tweet_is_in_the_timelines_of_its_author_s_followers(rows: Rows) -> None:
    assert entries(rows) == [
        ("ann", "t1"),
        ("ann", "t2"),
        ("cid", "t1"),
    ]


FOLLOWED_TWICE = [followed("ann", "bob"), followed("ann", "bob", "10:00:01"), tweeted("t1", "bob")]
FOLLOWED_AGAIN = [followed("ann", "bob"), unfollowed("ann", "bob", "10:02:00"), followed("ann", "bob", "10:03:00")]


@examples(
    {
        "once": ([*FOLLOWED_TWICE, unfollowed("ann", "bob", "10:02:00")], []),
        "followed again": (
            [*FOLLOWED_AGAIN, tweeted("t1", "bob"), unfollowed("cid", "bob", "10:00:00")],
            [("ann", "t1")],
        ),
    }
)
def test_who_unfollows_sees_no_tweet_however_often_he_followed(rows: Rows, expected: list[tuple[str, str]]) -> None:
    assert entries(rows) == expected


@example(
    [
        *(followed("ann", "bob"), tweeted("t1", "bob"), deleted("t1", "bob", "10:05:00")),
        *(deleted("t1", "bob", "10:06:00"), tweeted("t2", "bob")),
    ]
)
def test_a_deleted_tweet_vanishes(rows: Rows) -> None:
    assert entries(rows) == [("ann", "t2")]


@example(
    [
        *(followed("ann", "bob"), followed("ann", "eve")),
        *(tweeted("t1", "bob", text="first"), tweeted("t2", "eve", "10:05:00", "second")),
        *(named("bob", "Bob"), named("eve", "Eve"), named("bob", "Robert", "11:00:00")),
    ]
)
def test_readers_see_the_newest_tweets_with_the_author_s_present_name(relations: Relations) -> None:
    shown = [(row["tweet_id"], row["author"], row["photo"], row["text"]) for row in relations["newest"]]
    assert shown == [
        ("t1", "Robert", "https://photos.example/Robert", "first"),
        ("t2", "Eve", "https://photos.example/Eve", "second"),
    ]


@example(
    [
        *(followed("ann", "bob"), tweeted("t1", "bob")),
        *(named("bob", "Bob"), named("bob", "Bob", "11:00:00", "closed")),
    ]
)
def test_an_author_without_a_profile_has_no_name(relations: Relations) -> None:
    [row] = relations["newest"]
    assert (row["tweet_id"], row["author"]) == ("t1", None)


OF_BOB = [followed("ann", "bob"), followed("ann", "eve"), tweeted("t1", "bob", text="mine")]


@examples(
    {
        "deleted": ([*OF_BOB, deleted("t1", "eve", "10:05:00")], [("t1", "bob", "mine")]),
        "deleted before": ([deleted("t1", "eve", "09:00:00"), *OF_BOB], [("t1", "bob", "mine")]),
        "taken over": ([*OF_BOB, tweeted("t1", "eve", "10:05:00", "hers")], [("t1", "bob", "mine")]),
        "back-dated": ([*OF_BOB, tweeted("t1", "eve", "08:00:00", "hers")], [("t1", "bob", "mine")]),
        "given up": ([*OF_BOB, deleted("t1", "bob", "10:05:00"), tweeted("t1", "eve", "10:06:00", "hers")], []),
        "posted after its deletion": ([deleted("t1", "bob", "11:00:00"), *OF_BOB], []),
    },
    in_order=True,
)
def test_only_the_first_author_in_the_log_changes_a_tweet(relations: Relations, expected: Any) -> None:
    assert [(row["tweet_id"], row["author_id"], row["text"]) for row in relations["newest"]] == expected
    assert len(relations[None]) == len(expected)


@example([*OF_BOB, followed("cid", "bob"), deleted("t1", "eve", "10:05:00")], in_order=True, view=timeline(popular=1))
def test_nobody_else_deletes_a_popular_author_s_tweet(relations: Relations) -> None:
    assert entries(relations["newest"]) == [("ann", "t1"), ("cid", "t1")]


POPULAR = [
    *(followed("ann", "bob"), tweeted("t1", "bob"), tweeted("t2", "bob", "10:02:00")),
    followed("cid", "bob", "10:03:00"),
]
OF_ANN, OF_CID = [("ann", "t1"), ("ann", "t2")], [("cid", "t1"), ("cid", "t2")]


@examples(
    {
        "popular": (POPULAR, ([], OF_ANN + OF_CID)),
        "no longer popular": ([*POPULAR, unfollowed("cid", "bob", "10:04:00")], (OF_ANN, OF_ANN)),
    },
    view=timeline(popular=1),
)
def test_tweets_of_a_popular_author_are_looked_up(relations: Relations, expected: Any) -> None:
    """Two followers make an author popular here. With one follower, the author is no longer popular."""
    assert (entries(relations[None]), sorted(entries(relations["newest"]))) == expected


def test_generated_logs_give_the_timelines_of_a_naive_loop(lab: Lab, name: str, view: View) -> None:
    found_entries = 0
    for events, found in logs_and_relations(lab, name, view):
        expected = naive_timelines(events)
        assert sorted(entries(found[None])) == sorted(expected)
        assert Counter(entries(found["newest"])) == Counter(expected)
        found_entries += len(expected)
    assert found_entries > 5, "the logs hold too few tweets of followed people"


def naive_timelines(events: list[Row]) -> list[tuple[str, str]]:
    follows = last(events, "follow", "follower_id", "followee_id")
    tweets = last(of_owners(events, "tweet", "tweet_id", "author_id", "posted"), "tweet", "tweet_id")
    return [
        (reader, tweet)
        for (tweet,), posted in tweets.items()
        for (reader, author), follow in follows.items()
        if posted["author_id"] == author and follow["verb"] != "unfollowed" and posted["verb"] != "deleted"
    ]
