"""The throughput of the stream application, from the beginning to the end of an existing log.

An application runs for weeks, so its speed is measured on the second half of the log, after Java has compiled the hot
code. The time until every view has merged once and the total time are reported separately.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from shutil import copy

from tests.bench.beat import every
from tests.bench.corpus import Corpus
from tests.bench.row import OURS, Row
from tests.scenes.applications import Application, start
from truelog.storage.database import Connection, connect
from truelog.support.settings import Settings

_LOOK_SECONDS = 0.02
_WITHIN_SECONDS = 180.0

# In each partition, only records that every view has read count. Ticks never end, so they do not count.
_READ = """
SELECT (SELECT count(DISTINCT view) FROM truelog.position)::int, coalesce(sum(low), 0)::bigint
FROM (SELECT min(next_offset) AS low FROM truelog.position WHERE topic <> 'ticks' GROUP BY topic, partition) AS slowest
"""


@dataclass(frozen=True)
class Passage:
    """A stream's run through the log: its start, every view's first merge, its halfway point and its end."""

    started: float
    first: float
    half: float
    last: float
    events_half: int
    events: int
    wal_bytes: int

    @property
    def events_per_second(self) -> float:
        return (self.events - self.events_half) / (self.last - self.half)


def row(job: str, passage: Passage) -> Row:
    return Row(
        job,
        OURS,
        passage.events_per_second,
        "alone",
        "the second half of the log; start_seconds: Spark's start and the first batch",
        more={
            "events": passage.events,
            "start_seconds": passage.first - passage.started,
            "whole_seconds": passage.last - passage.started,
            "wal_bytes_per_event": passage.wal_bytes / passage.events,
        },
    )


def launch(settings: Settings, views: Sequence[str]) -> Application:
    """Start the real application with a catalogue that contains only these views."""
    folder = settings.home / f"views-{time.monotonic_ns()}"
    folder.mkdir()
    for view in views:
        copy(settings.views_folder / f"{view}.py", folder)
    return start(settings, "stream.py", TRUELOG_VIEWS_FOLDER=str(folder))


def follow(settings: Settings, application: Application, views: Sequence[str], corpus: Corpus) -> Passage:
    """Watch a newly launched stream until its views have read the whole corpus."""
    events = corpus.counts["page_view"] if "click_through" not in views else corpus.events
    started, first, half = time.time(), 0.0, (0.0, 0)
    with connect(settings, autocommit=True) as connection:
        begun_at = _wal(connection)
        for now in every(_LOOK_SECONDS, within=_WITHIN_SECONDS, what=f"stream of {', '.join(views)}"):
            if application.process.poll() is not None:
                raise RuntimeError(f"the stream application ended:\n{application.tail()}")
            merged, read = _read(connection)
            if merged < len(views):
                continue
            first = first or now
            if read >= events / 2 and not half[1]:
                half = now, read
            if read >= events:
                break
        return Passage(started, first, half[0], now, half[1], events, _wal(connection) - begun_at)


def total(settings: Settings) -> int:
    """The number of page views in the finest cube."""
    with connect(settings) as connection:
        found = connection.execute("SELECT coalesce(sum(views), 0)::bigint FROM views.page_views").fetchone()
        assert found is not None
        return int(str(found[0]))


def _read(connection: Connection) -> tuple[int, int]:
    found = connection.execute(_READ).fetchone()
    assert found is not None
    return int(str(found[0])), int(str(found[1]))


def _wal(connection: Connection) -> int:
    found = connection.execute("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn").fetchone()
    assert found is not None
    return int(str(found[0]))
