"""What one event costs a Join whose rows follow from many others: tweets of popular authors, and a follower's past.

Each step sends events and waits until the view has merged them.
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
from truelog.log import topics
from truelog.log.kafka_producer import KafkaSender, OutgoingRecord
from truelog.log.positions import Positions
from truelog.storage.database import Connection, connect
from truelog.support import timestamps
from truelog.support.settings import Settings

VIEW = "home_timeline"
TOPICS = ("follow", "tweet", "profile")
CELEBRITY, AUTHOR, DILIGENT = "celebrity", "author", "diligent"
FOLLOWERS, TWEETS, READS = 100_000, 10_000, 20

_WITHIN_SECONDS = 600.0
_LOOK_SECONDS = 0.02

Step = tuple[str, Iterable[OutgoingRecord]]


def run(settings: Settings, application: Application) -> Iterator[Row]:
    """The rows of all steps, then the time of a read. The application must run `home_timeline`."""
    with connect(settings, autocommit=True) as connection:
        yield from (_step(settings, application, connection, *step) for step in _steps())
        yield _read(connection)


def _steps() -> Iterator[Step]:
    yield "a reader's first events", [_follow("reader", author) for author in (CELEBRITY, AUTHOR)]
    yield f"{FOLLOWERS:,} people follow one author", (_follow(f"f{n}", CELEBRITY) for n in range(FOLLOWERS))
    yield f"an author with {FOLLOWERS:,} followers tweets", [_tweet("c1", CELEBRITY)]
    yield f"{POPULAR - 1:,} people follow an author", (_follow(f"g{n}", AUTHOR) for n in range(POPULAR - 1))
    yield f"an author with {POPULAR:,} followers tweets", [_tweet("a1", AUTHOR)]
    yield f"the author with {POPULAR:,} followers becomes popular", [_follow("last", AUTHOR)]
    yield f"an author tweets {TWEETS:,} times", (_tweet(f"d{n}", DILIGENT) for n in range(TWEETS))
    yield f"a reader follows an author with {TWEETS:,} tweets", [_follow("reader", DILIGENT)]


def _step(
    settings: Settings, application: Application, connection: Connection, name: str, records: Iterable[OutgoingRecord]
) -> Row:
    before = _merging(connection)
    with KafkaSender(settings, TOPICS) as sender:
        for record in records:
            sender.send(record)
    begin, ends = time.time(), topics.end_offsets(settings, TOPICS)
    for now in every(_LOOK_SECONDS, within=_WITHIN_SECONDS, what=name):
        streaming.require_running(application)
        if _positions(connection).covers(ends):
            seconds = now - begin
            more = {"events": sender.sent, "seconds": seconds, "merge_seconds": _merging(connection) - before}
            return Row(
                name, OURS, sender.sent / seconds, "alone", "from the last acknowledgement to the merge", more=more
            )
    raise AssertionError("every() raises at its limit")


def _read(connection: Connection) -> Row:
    """The median time of a read of the newest tweets, some of them from an author whose tweets are in no timeline."""
    query = sql.SQL("SELECT tweet_id FROM {} WHERE reader_id = 'reader'").format(
        sql.Identifier("views", f"{VIEW}_newest")
    )
    times = []
    for _ in range(READS):
        begin = time.perf_counter()
        found = connection.execute(query).fetchall()
        times.append(time.perf_counter() - begin)
    if len(found) != 100:
        raise RuntimeError(f"the reader sees {len(found)} tweets, not the 100 newest")
    seconds = sorted(times)[READS // 2]
    return Row("read a timeline", OURS, 1 / seconds, "alone", f"median of {READS}", more={"seconds": seconds})


def _positions(connection: Connection) -> Positions:
    rows = connection.execute(
        "SELECT topic, partition, next_offset, topic_id FROM truelog.position WHERE view = %s", (VIEW,)
    ).fetchall()
    return Positions.of_rows(rows)


def _merging(connection: Connection) -> float:
    """The seconds that all merges of the view took."""
    row = connection.execute("SELECT merging FROM truelog.merge_tally WHERE view = %s", (VIEW,)).fetchone()
    return 0.0 if row is None else float(str(row[0]))


def _follow(reader: str, author: str) -> OutgoingRecord:
    return _event("follow", reader, follower_id=reader, followee_id=author, verb="followed")


def _tweet(tweet: str, author: str) -> OutgoingRecord:
    return _event("tweet", tweet, tweet_id=tweet, author_id=author, verb="posted", text="hello")


def _event(topic: str, key: str, **fields: str) -> OutgoingRecord:
    event = {"event_id": key, "occurred_at": timestamps.to_text(datetime.now(UTC)), **fields}
    return OutgoingRecord(topic, key, json.dumps(event).encode())
