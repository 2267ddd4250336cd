"""What one event costs a Join whose rows follow from many others: tweets, followers and likes.

Each step sends events and waits until the views have merged them.
"""

from collections.abc import Iterator

from bench.row import Row
from bench.steps import Merged, Step, event, read
from spark_apps.views.home_timeline import POPULAR
from tests.scenes.applications import Application
from truelog.log.kafka_producer import OutgoingRecord
from truelog.storage.database import connect
from truelog.support.settings import Settings

VIEWS = ("home_timeline", "post")
CELEBRITY, AUTHOR, DILIGENT = "celebrity", "author", "diligent"
FOLLOWERS, TWEETS, LIKES, COMMENTS, FRIENDS = 100_000, 10_000, 160_216, 1_000, 500


def run(settings: Settings, application: Application) -> Iterator[Row]:
    """The rows of all steps, then the times of reads. The application must run the views."""
    with connect(settings, autocommit=True) as connection:
        merged = Merged(settings, application, connection, VIEWS)
        yield from (merged.step(*step) for step in (*_timelines(), *_posts()))
        for what, relation, condition, rows in _reads():
            yield read(connection, what, f"SELECT * FROM views.{relation} WHERE {condition}", rows)


def _reads() -> Iterator[tuple[str, str, str, int]]:
    """What is read, the relation, the condition and the number of rows."""
    yield "a timeline", "home_timeline_newest", "reader_id = 'reader'", 100
    yield "a post", "post_summary", "post_id = 'p'", 1
    yield f"the best of {COMMENTS:,} comments", "post_top_comments", "post_id = 'p'", 4
    near = "post_id = 'p' AND reader_id = 'reader'"
    yield f"the closest of {FRIENDS:,} friends who like it", "post_closest_likers", near, 3


def _timelines() -> Iterator[Step]:
    yield "a reader's first events", [_follow("reader", author) for author in (CELEBRITY, AUTHOR)]
    yield f"{FOLLOWERS:,} people follow one author", (_follow(f"f{n}", CELEBRITY) for n in range(FOLLOWERS))
    yield f"an author with {FOLLOWERS:,} followers tweets", [_tweet("c1", CELEBRITY)]
    yield f"{POPULAR - 1:,} people follow an author", (_follow(f"g{n}", AUTHOR) for n in range(POPULAR - 1))
    yield f"an author with {POPULAR:,} followers tweets", [_tweet("a1", AUTHOR)]
    yield f"the author with {POPULAR:,} followers becomes popular", [_follow("last", AUTHOR)]
    yield f"an author tweets {TWEETS:,} times", (_tweet(f"d{n}", DILIGENT) for n in range(TWEETS))
    yield f"a reader follows an author with {TWEETS:,} tweets", [_follow("reader", DILIGENT)]


def _posts() -> Iterator[Step]:
    yield "a post", [event("post", "p", post_id="p", author_id=AUTHOR, verb="posted", text="hello")]
    yield f"{LIKES:,} people like it", (_like("p", f"f{n}") for n in range(LIKES))
    yield f"a like of a post with {LIKES:,} likes", [_like("p", "reader")]
    yield f"{COMMENTS:,} comments", (_comment(f"c{n}") for n in range(COMMENTS))
    yield (
        f"{10 * COMMENTS:,} likes of the comments",
        (_like(f"c{n * n % COMMENTS}", f"f{n}") for n in range(10 * COMMENTS)),
    )
    yield f"{FRIENDS:,} friends", (_friend("reader", f"f{n}") for n in range(FRIENDS))
    yield f"{FRIENDS:,} friends of one of them", (_friend("f0", f"f{n}") for n in range(1, FRIENDS + 1))


def _follow(reader: str, author: str) -> OutgoingRecord:
    return event("follow", reader, follower_id=reader, followee_id=author, verb="followed")


def _tweet(tweet: str, author: str) -> OutgoingRecord:
    return event("tweet", tweet, tweet_id=tweet, author_id=author, verb="posted", text="hello")


def _like(target: str, person: str) -> OutgoingRecord:
    return event("like", target, target_id=target, person_id=person, verb="liked")


def _comment(comment: str) -> OutgoingRecord:
    return event("comment", comment, comment_id=comment, post_id="p", author_id=AUTHOR, verb="posted", text="nice")


def _friend(person: str, friend: str) -> OutgoingRecord:
    return event("friendship", person, person_id=person, friend_id=friend, verb="friended")
