"""The stream application on an existing log: its speed and CPU time in steady state.

An application runs for weeks, but its first minute is mostly Java's compiler. The measurement therefore starts after a
warm-up. It starts and ends when a merge becomes visible, so that no part of a batch is counted without its cost.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from bench.corpus import TOPICS, in_log
from bench.cpu import Meter, Reading, Used, used
from bench.ground import services
from bench.row import OURS, Row
from tests.beat import every
from tests.scenes.applications import Application, start
from truelog.log.positions import Positions
from truelog.storage.database import Connection, connect
from truelog.support.settings import Settings

EXACTLY_ONCE = "exactly once, merged and checkpointed in each batch"

HORIZON = "10 seconds"
DEDUPE = f"""
from dataclasses import replace

VIEW = replace(VIEW, dedupe="{HORIZON}")
"""

_LOOK_SECONDS = 0.1
_PATIENCE_SECONDS = 240.0
_SLOWEST = 4_000  # events per second; a slower stream exceeds its time limit

# In each partition, only records that every view has read count. Ticks never end, so they do not count.
_READ = """
SELECT (SELECT count(DISTINCT view) FROM truelog.position)::int, coalesce(sum(low), 0)::bigint
FROM (SELECT min(next_offset) AS low FROM truelog.position WHERE topic <> 'ticks' GROUP BY topic, partition) AS slowest
"""


@dataclass(frozen=True)
class Window:
    """How long to warm up, and how many events to measure at least. The log's end decides how many are measured."""

    warm_seconds: float
    events: int


@dataclass(frozen=True)
class Mark:
    """A merge that became visible: the number of events that every view has read, and the readings at that time."""

    events: int
    reading: Reading
    wal: int


@dataclass(frozen=True)
class Passage:
    """A stream's run through the log: its start, every view's first merge, and the two ends of the measurement."""

    started: float
    first: float
    begin: Mark
    end: Mark

    @property
    def events(self) -> int:
        return self.end.events - self.begin.events

    @property
    def used(self) -> Used:
        return used(self.begin.reading, self.end.reading)

    @property
    def warm_seconds(self) -> float:
        return self.begin.reading.at - self.first


def row(job: str, passage: Passage, window: Window) -> Row:
    short = "" if passage.warm_seconds >= window.warm_seconds else "; the log was too short for the whole warm-up"
    return Row(
        job,
        OURS,
        passage.events / passage.used.wall,
        "alone",
        f"after {passage.warm_seconds:.0f} s of warm-up{short}",
        more={
            "events": passage.events,
            "seconds": passage.used.wall,
            "start_seconds": passage.first - passage.started,
            "wal_bytes_per_event": (passage.end.wal - passage.begin.wal) / passage.events,
        },
        guarantees=EXACTLY_ONCE,
        cpu_us_per_event=passage.used.per_event(passage.events),
        other_cores=passage.used.other_cores,
    )


def launch(settings: Settings, views: Sequence[str], copies: int = 1, added: str = "") -> Application:
    """Start the real application with a catalogue that contains only these views, each in this many copies.

    `added` is code at the end of each file.
    """
    folder = settings.home / f"views-{time.monotonic_ns()}"
    folder.mkdir()
    for view in views:
        for number in range(1, copies + 1):
            made = folder / (f"{view}.py" if number == 1 else f"{view}_{number}.py")
            made.write_text((settings.views_folder / f"{view}.py").read_text() + added)
    return start(settings, "stream.py", TRUELOG_VIEWS_FOLDER=str(folder))


def expected(settings: Settings, views: Sequence[str]) -> int:
    """The number of records in the topics that these views read."""
    return in_log(settings, TOPICS if "click_through" in views else ("page_view",))


def follow(settings: Settings, application: Application, views: Sequence[str], count: int, window: Window) -> Passage:
    """Watch a newly launched stream until its views have read the whole log. `count` is the number of views."""
    events, started = expected(settings, views), time.time()
    meter = Meter(services(settings), application.process.pid)
    first, seen, begin = 0.0, 0, None
    within = _PATIENCE_SECONDS + window.warm_seconds + events / _SLOWEST
    with connect(settings, autocommit=True) as connection:
        for now in every(_LOOK_SECONDS, within=within, what=f"stream of {', '.join(views)}"):
            require_running(application)
            merged, read = progress(connection)
            if merged < count or read == seen:
                continue
            first, seen = first or now, read
            warm = now - first >= window.warm_seconds or events - read <= window.events
            if begin is None and warm:
                begin = Mark(read, meter.read(), _wal(connection))
            if begin is not None and read >= events:
                return Passage(started, first, begin, Mark(read, meter.read(), _wal(connection)))
    raise AssertionError("every() raises at its limit")


def require_running(application: Application) -> None:
    if application.process.poll() is not None:
        raise RuntimeError(f"the stream application ended:\n{application.tail()}")


def total(settings: Settings) -> int:
    """The number of page views in the finest cube."""
    with connect(settings) as connection:
        return _integers(connection, "SELECT coalesce(sum(views), 0)::bigint FROM views.page_views")[0]


def progress(connection: Connection) -> tuple[int, int]:
    """The number of views with positions, and the number of events that all of them have read."""
    views, events = _integers(connection, _READ)
    return views, events


def positions(connection: Connection, view: str) -> Positions:
    rows = connection.execute(
        "SELECT topic, partition, next_offset, topic_id FROM truelog.position WHERE view = %s", (view,)
    ).fetchall()
    return Positions.of_rows(rows)


def _wal(connection: Connection) -> int:
    return _integers(connection, "SELECT (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint")[0]


def _integers(connection: Connection, query: str) -> list[int]:
    found = connection.execute(query).fetchone()
    assert found is not None
    return [int(str(value)) for value in found]
