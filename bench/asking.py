"""How long one command takes, from its start to its end: SQL on the archive, and the explanation of a row of a Join.

Each command is a process of its own, as a person runs it. The stream and the archive are idle. The first run of a
command reads its libraries from disk if nothing has read them since the machine started.
"""

import os
import statistics
import subprocess
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import partial

from bench import command, streaming
from bench.corpus import good
from bench.cpu import Meter, Used, measured
from bench.row import OURS, Row
from tests.beat import first
from tests.scenes.applications import start
from truelog.archive.table import archived_positions
from truelog.log import topics
from truelog.log.kafka_producer import make_producer
from truelog.storage.database import connect
from truelog.support.settings import Settings
from truelog.traffic import generator
from truelog.views import catalogue

VIEWS = ("post",)

_OURSELVES = Meter({"bench": os.getpid()})  # a command has ended when it is read, and its time counts for this process
_RATE, _SECONDS, _SOCIAL = 100, 100, 0.7
_SEED = 23
_REPEATED = 5
_EVENTS = 23  # of the explained post, or the nearest number that a post has
_LOOK_SECONDS = 0.1
_PATIENCE_SECONDS = 180.0
_POST = "SELECT post_id FROM views.post ORDER BY abs(likes + comments + shares - %s), post_id LIMIT 1"


def run(settings: Settings) -> Iterator[Row]:
    """Ask on a platform whose stream of `post` is running."""
    archive = start(settings, "archive.py", TRUELOG_ARCHIVE_TRIGGER_SECONDS="1")
    _fill(settings)
    yield _row("truelog sql, no table", ["sql", "SELECT 1"])
    yield _row("truelog sql, events of one type", ["sql", 'SELECT count(*) FROM "like"'])
    yield _row("truelog sql, a view", ["sql", "SELECT count(*) FROM views.post"])
    yield _row("truelog explain, a row of a Join", ["explain", "post", f"post_id={_post(settings)}", "--limit", "50"])
    archive.end()


def _row(job: str, arguments: Sequence[str]) -> Row:
    ask = partial(command.run, arguments, stdout=subprocess.DEVNULL)
    costs = [measured(_OURSELVES, ask) for _ in range(1 + _REPEATED)]
    again = statistics.median(cost.wall for cost in costs[1:])
    return Row(
        job,
        OURS,
        1 / again,
        "alone",
        f"seconds: the median of {_REPEATED} runs after the first",
        more={"first_seconds": costs[0].wall, "seconds": again, "cpu_seconds": statistics.median(map(_cpu, costs[1:]))},
    )


def _cpu(cost: Used) -> float:
    return sum(cost.seconds.values())


def _post(settings: Settings) -> str:
    with connect(settings) as connection:
        [(post,)] = connection.execute(_POST, (_EVENTS,)).fetchall()
    return str(post)


def _fill(settings: Settings) -> None:
    """Send traffic, and wait until the stream and the archive have it."""
    producer, reads = make_producer(settings), catalogue.load_view(VIEWS[0]).reads
    traffic = generator.generate(seed=_SEED, begin=datetime.now(UTC), rate=_RATE, seconds=_SECONDS, social=_SOCIAL)
    for record in good(traffic):
        producer.produce(record.topic, record.value, record.key)
    producer.flush()
    ends = topics.end_offsets(settings, reads)
    with connect(settings, autocommit=True) as connection:
        has_read = partial(streaming.positions, connection, VIEWS[0])
        first(_LOOK_SECONDS, lambda: has_read().covers(ends), within=_PATIENCE_SECONDS, what="the stream")
    has_archived = partial(archived_positions, settings, reads)
    first(_LOOK_SECONDS, lambda: has_archived().covers(ends), within=_PATIENCE_SECONDS, what="the archive")
