"""What one event costs a Join whose rows follow from many others: tweets, followers and likes.

Each step sends events and waits until the views have merged them.
"""

import json
import time
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

from psycopg import sql
from spark_apps.views.home_timeline import POPULAR

from tests.bench import streaming
from tests.bench.beat import every
from tests.bench.row import OURS, Row
from tests.scenes.applications import Application
from truelog.ingest import community
from truelog.log import topics
from truelog.log.kafka_producer import KafkaSender, OutgoingRecord
from truelog.storage.database import Connection, connect
from truelog.support import timestamps
from truelog.support.settings import Settings
from truelog.views import catalogue

VIEWS = ("home_timeline", "post")
TOPICS = community.TOPICS
CELEBRITY, AUTHOR, DILIGENT = "celebrity", "author", "diligent"
FOLLOWERS, TWEETS, LIKES, COMMENTS, FRIENDS, READS = 100_000, 10_000, 160_216, 1_000, 500, 20

_WITHIN_SECONDS = 600.0
_LOOK_SECONDS = 0.02

Step = tuple[str, Iterable[OutgoingRecord]]


def run(settings: Settings, application: Application) -> Iterator[Row]:
    """The rows of all steps, then the times of reads. The application must run the views."""
    with connect(settings, autocommit=True) as connection:
        yield from (_step(settings, application, connection, *step) for step in (*_timelines(), *_posts()))
        yield _read(connection, "a timeline", "home_timeline_newest", "reader_id = 'reader'", 100)
        yield _read(connection, "a post", "post_summary", "post_id = 'p'", 1)
        yield _read(connection, f"the best of {COMMENTS:,} comments", "post_top_comments", "post_id = 'p'", 4)
        near = "post_id = 'p' AND reader_id = 'reader'"
        yield _read(connection, f"the closest of {FRIENDS:,} friends who like it", "post_closest_likers", near, 3)


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
    yield "a post", [_event("post", "p", post_id="p", author_id=AUTHOR, verb="posted", text="hello")]
    yield f"{LIKES:,} people like it", (_like("p", f"f{n}") for n in range(LIKES))
    yield f"a like of a post with {LIKES:,} likes", [_like("p", "reader")]
    yield f"{COMMENTS:,} comments", (_comment(f"c{n}") for n in range(COMMENTS))
    yield (
        f"{10 * COMMENTS:,} likes of the comments",
        (_like(f"c{n * n % COMMENTS}", f"f{n}") for n in range(10 * COMMENTS)),
    )
    yield f"{FRIENDS:,} friends", (_friend("reader", f"f{n}") for n in range(FRIENDS))
    yield f"{FRIENDS:,} friends of one of them", (_friend("f0", f"f{n}") for n in range(1, FRIENDS + 1))


def _step(
    settings: Settings, application: Application, connection: Connection, name: str, records: Iterable[OutgoingRecord]
) -> Row:
    before, reads = _merging(connection), {view: catalogue.load_view(view).reads for view in VIEWS}
    with KafkaSender(settings, TOPICS) as sender:
        for record in records:
            sender.send(record)
    begin, ends = time.time(), topics.end_offsets(settings, TOPICS)
    for now in every(_LOOK_SECONDS, within=_WITHIN_SECONDS, what=name):
        streaming.require_running(application)
        if all(streaming.positions(connection, view).covers(ends.only(read)) for view, read in reads.items()):
            seconds = now - begin
            more = {"events": sender.sent, "seconds": seconds, "merge_seconds": _merging(connection) - before}
            return Row(
                name, OURS, sender.sent / seconds, "alone", "from the last acknowledgement to the merge", more=more
            )
    raise AssertionError("every() raises at its limit")


def _read(connection: Connection, what: str, relation: str, condition: str, rows: int) -> Row:
    """The median time of a read."""
    query = sql.SQL("SELECT * FROM {} WHERE ").format(sql.Identifier("views", relation)) + sql.SQL(condition)
    times = []
    for _ in range(READS):
        begin = time.perf_counter()
        found = connection.execute(query).fetchall()
        times.append(time.perf_counter() - begin)
    if len(found) != rows:
        raise RuntimeError(f"a read of {what} found {len(found)} rows instead of {rows}")
    seconds = sorted(times)[READS // 2]
    return Row(f"read {what}", OURS, 1 / seconds, "alone", f"median of {READS}", more={"seconds": seconds})


def _merging(connection: Connection) -> float:
    """The seconds that all merges of the views took."""
    row = connection.execute("SELECT coalesce(sum(merging), 0) FROM truelog.merge_tally").fetchone()
    return float(str(row and row[0]))


def _follow(reader: str, author: str) -> OutgoingRecord:
    return _event("follow", reader, follower_id=reader, followee_id=author, verb="followed")


def _tweet(tweet: str, author: str) -> OutgoingRecord:
    return _event("tweet", tweet, tweet_id=tweet, author_id=author, verb="posted", text="hello")


def _like(target: str, person: str) -> OutgoingRecord:
    return _event("like", target, target_id=target, person_id=person, verb="liked")


def _comment(comment: str) -> OutgoingRecord:
    return _event("comment", comment, comment_id=comment, post_id="p", author_id=AUTHOR, verb="posted", text="nice")


def _friend(person: str, friend: str) -> OutgoingRecord:
    return _event("friendship", person, person_id=person, friend_id=friend, verb="friended")


def _event(topic: str, key: str, **fields: str) -> OutgoingRecord:
    event = {"event_id": key, "occurred_at": timestamps.to_text(datetime.now(UTC)), **fields}
    return OutgoingRecord(topic, key, json.dumps(event).encode())
