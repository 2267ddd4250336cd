"""The jobs in order, and the engines that they are compared with. All jobs use the same platform and corpus.

1. the archive, from the beginning of the log
2. the stream into one cube, then a bare consumer, Quix Streams, Kafka Streams and Flink SQL on the same topic
3. the stream into two, four and eight views; an idle application with eight views
4. freshness, a kill and a backlog with four views, then their comparison with the archive
5. the rebuild from the archive, then DuckDB and Polars on the same bytes
6. the collector
7. freshness and the collector again, while the whole platform is running, including Airflow
8. single events that change many rows of a Join, on a platform of its own
9. single events of keys of a Group that have many events, and searches, on a platform of its own
10. batch work over 1, 10 and 100 log days, on a platform of its own
11. requests of one address beyond its limit, and questions about addresses, on a platform of its own
12. point reads of the API, on a platform of its own
13. an outbox that the relay publishes, and changes that the API pushes to a thousand subscribers, each on a platform of
    its own
14. commands on one key and on a million keys, on a platform of its own
15. the figures of cubes over 30 days, on a platform of its own
16. notifications of matches at a webhook, on a platform of its own
17. the start of commands: SQL, and the explanation of a row of a Join, on a platform of its own
18. the stream application alone with all streamed views: idle, and its cost and freshness under traffic, on a platform
    of its own
19. pattern rules under traffic and a backtest, and stored searches in one process and on a platform, each on a platform
    of its own
20. the idle platform, its cost by process and the freshness of every view under traffic, and the time after a launch
    and a kill, with four views, with all, and with fifty, each on a platform of its own
21. five views in Truelog, Flink SQL, Kafka Streams and Pathway, one engine after the other on the same events, on a
    platform of its own
"""

import logging
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from bench import (
    archiving,
    asking,
    collecting,
    deciding,
    exploring,
    fanout,
    flink,
    folding,
    freshness,
    history,
    limiting,
    matching,
    notifying,
    publishing,
    pushing,
    reading,
    rebuilding,
    reconciling,
    restarting,
    searching,
    streaming,
    whole,
)
from bench.core_speed import CoreSpeed
from bench.corpus import RATE, Corpus, in_log
from bench.cpu import LostProcess, Meter, Reading, used
from bench.five import job as five
from bench.ground import complete, forget_views
from bench.peers import Peers
from bench.row import Row, compared
from bench.streaming import Window
from tests.scenes.applications import Application
from truelog.limits import rate_answer as rate_limit_answer
from truelog.support.settings import Settings
from truelog.views import catalogue

ONE, TWO, FOUR, EIGHT = (f"stream into {n}" for n in ("one cube", "two views", "four views, with sketches", "8 views"))
VIEWS = {
    ONE: ("page_views",),
    TWO: ("page_views", "request_rates"),
    FOUR: ("page_views", "request_rates", "click_through", "page_audience"),
}
VIEWS[EIGHT] = VIEWS[FOUR]
ONCE = f"{ONE}, each event id once in {streaming.HORIZON}"
VIEWS[ONCE] = VIEWS[ONE]
_QUIX_WARM_SECONDS = 10.0  # it has no compiler to wait for
_JAVA_WARM_SECONDS = 10.0  # they may read the whole log in half a minute
COPIES = {EIGHT: 2}  # of each view, under other names
ADDED = {ONCE: streaming.DEDUPE}  # to the file of each view

# Services, applications and the other engines are descendants of this process.
_OURSELVES = Meter({"bench": os.getpid()})

log = logging.getLogger("truelog.bench")


def _other_cores(before: Reading) -> float | None:
    """The cores that other programs have used since; None if the job killed a process, whose time is then lost."""
    try:
        return used(before, _OURSELVES.read()).other_cores
    except LostProcess:
        return None


@dataclass
class Suite:
    """One benchmark run; `rows` are the results so far."""

    settings: Settings
    corpus: Corpus
    seconds: float  # duration of each freshness, collector or idle measurement
    window: Window
    peers: Peers = field(default_factory=Peers)
    rows: list[Row] = field(default_factory=list)
    running: tuple[str, Application] | None = None  # an application that has read the whole log, and its job
    deployed: bool = False  # a stream of this run has created the tables of the views

    def run(self, chosen: Iterable[str]) -> None:
        speed = CoreSpeed()
        for name in chosen:
            log.info("%s …", name)
            before = _OURSELVES.read()
            speed.begin()
            for row in JOBS[name](self):  # a long job yields each row at once, so that a later failure does not lose it
                cost = row.cpu_us_per_event.get("all", 0.0)
                log.info("%s, %s: %.0f events/s, %.1f CPU µs", row.job, row.engine, row.events_per_second, cost)
                found = row.other_cores if row.other_cores is not None else _other_cores(before)
                self.rows.append(replace(row, other_cores=found, reference_ms=speed.milliseconds()))
        self._end()

    def archive(self) -> list[Row]:
        self._end()
        return [archiving.run(self.settings)]

    def one_cube(self) -> list[Row]:
        return [self._streamed(ONE)]

    def each_once(self) -> list[Row]:
        """Each id is remembered for a shorter time than the log lasts, so the stream also forgets ids."""
        return [self._streamed(ONCE)]

    def bare(self) -> list[Row]:
        self._end()
        return [compared(self.rows, self.peers.bare(self.settings, ONE))]

    def quix(self) -> list[Row]:
        self._end()
        return [
            compared(self.rows, self.peers.quix(self.settings, ONE, min(self.window.warm_seconds, _QUIX_WARM_SECONDS)))
        ]

    def streams(self) -> list[Row]:
        self._end()
        return [compared(self.rows, self.peers.streams(self.settings, ONE, self._java_warm_seconds))]

    def flink(self) -> list[Row]:
        self._end()
        return [compared(self.rows, flink.run(self.settings, ONE, self._java_warm_seconds))]

    @property
    def _java_warm_seconds(self) -> float:
        return min(self.window.warm_seconds, _JAVA_WARM_SECONDS)

    def two_views(self) -> list[Row]:
        return [self._streamed(TWO)]

    def four_views(self) -> list[Row]:
        return [self._streamed(FOUR)]

    def eight_views(self) -> list[Row]:
        return [self._streamed(EIGHT)]

    def idle(self) -> list[Row]:
        return [restarting.idle(self.settings, self._caught_up(EIGHT), len(VIEWS[EIGHT]) * 2, self.seconds)]

    def freshness(self) -> list[Row]:
        self._caught_up(FOUR)
        return freshness.run(self.settings, rate=RATE, seconds=self.seconds, ran="alone")

    def killed(self) -> list[Row]:
        row, application = restarting.killed(self.settings, self.corpus, self._caught_up(FOUR), VIEWS[FOUR])
        self.running = FOUR, application
        return [row]

    def backlog(self) -> list[Row]:
        row, application = restarting.backlog(self.settings, self.corpus, self._caught_up(FOUR), VIEWS[FOUR])
        self.running = FOUR, application
        return [row]

    def reconcile(self) -> list[Row]:
        """Compare while nothing else is running. The archive reads first what earlier jobs have sent."""
        self._caught_up(FOUR)
        self._end()
        archiving.catch_up(self.settings)
        return reconciling.run(self.settings, VIEWS[FOUR])

    def rebuild(self) -> list[Row]:
        """Rebuild a view that a stream has deployed, because loading needs its tables."""
        if not self.deployed:
            self._streamed(ONE)
        self._end()
        archiving.catch_up(self.settings)
        return rebuilding.run(self.settings)

    def duckdb(self) -> list[Row]:
        return [compared(self.rows, self.peers.duckdb(self.corpus, job)) for job in (rebuilding.TYPED, rebuilding.RAW)]

    def polars(self) -> list[Row]:
        return [compared(self.rows, self.peers.polars(self.corpus, job)) for job in (rebuilding.TYPED, rebuilding.RAW)]

    def collector(self) -> list[Row]:
        self._end()
        return [collecting.run(self.settings, seconds=self.seconds, ran="alone")]

    def all_on(self) -> list[Row]:
        self._end()
        complete(self.settings)
        fresh = freshness.run(self.settings, rate=RATE, seconds=self.seconds, ran="all on")
        return [*fresh, collecting.run(self.settings, seconds=self.seconds, ran="all on")]

    def fanout(self) -> list[Row]:
        application = streaming.launch(self.settings, fanout.VIEWS)
        self.running = "fanout", application
        return list(fanout.run(self.settings, application))

    def folding(self) -> list[Row]:
        application = streaming.launch(self.settings, folding.VIEWS)
        self.running = "folding", application
        return list(folding.run(self.settings, application))

    def history(self) -> list[Row]:
        return list(history.run(self.settings))

    def limits(self) -> list[Row]:
        self.running = "limits", streaming.launch(self.settings, rate_limit_answer.VIEWS)
        return limiting.run(self.settings)

    def reads(self) -> list[Row]:
        self.running = "reads", streaming.launch(self.settings, reading.VIEWS)
        return reading.run(self.settings, seconds=self.seconds)

    def outputs(self) -> list[Row]:
        return [publishing.run(self.settings)]

    def pushes(self) -> list[Row]:
        application = streaming.launch(self.settings, pushing.VIEWS)
        self.running = "pushes", application
        return [pushing.run(self.settings, application, self.seconds)]

    def asks(self) -> list[Row]:
        self.running = "asks", streaming.launch(self.settings, asking.VIEWS)
        return list(asking.run(self.settings))

    def commands(self) -> list[Row]:
        return deciding.run(self.settings, seconds=self.seconds)

    def figures(self) -> list[Row]:
        self.running = "figures", streaming.launch(self.settings, exploring.VIEWS)
        return list(exploring.run(self.settings))

    def notifications(self) -> list[Row]:
        with notifying.told(self.settings) as (settings, listener):
            application = streaming.launch(settings, notifying.VIEWS)
            self.running = "notifications", application
            return [notifying.run(settings, listener, application, self.seconds)]

    def matches(self) -> list[Row]:
        application = streaming.launch(self.settings, matching.VIEWS)
        self.running = "matches", application
        return list(matching.run(self.settings, application, self.seconds))

    def backtest(self) -> list[Row]:
        return [matching.run_backtest(self.settings, streaming.launch(self.settings, matching.VIEWS))]

    def matcher(self) -> list[Row]:
        self._end()
        return list(matching.in_process())

    def searches(self) -> list[Row]:
        application = streaming.launch(self.settings, searching.VIEWS)
        self.running = "searches", application
        return list(searching.run(self.settings, application))

    def percolator(self) -> list[Row]:
        self._end()
        return list(searching.in_process())

    def whole_four(self) -> Iterable[Row]:
        return whole.run(self.settings, VIEWS[FOUR], self.seconds, [whole.FAST])

    def whole_catalogue(self) -> Iterable[Row]:
        views = catalogue.view_names(self.settings.views_folder)
        return whole.run(self.settings, views, self.seconds, [whole.SLOW, whole.FAST, whole.BUSY])

    def whole_fifty(self) -> Iterable[Row]:
        views = catalogue.view_names(self.settings.views_folder)
        return whole.run(self.settings, views, self.seconds, [whole.MEDIUM], whole.FIFTY)

    def stream_catalogue(self) -> Iterable[Row]:
        return whole.run_stream(self.settings, self.seconds, [whole.SLOW, whole.FAST])

    def five_views(self) -> Iterable[Row]:
        return five.run(self.settings, self.seconds)

    def _caught_up(self, job: str) -> Application:
        """The application of a job that has read the whole log; started if the last job was another one."""
        if self.running is None or self.running[0] != job:
            self._streamed(job)
        assert self.running is not None
        return self.running[1]

    def _streamed(self, job: str) -> Row:
        """Measure a stream from the beginning of the log. The application continues to run."""
        self._end()
        forget_views(self.settings)
        copies = COPIES.get(job, 1)
        application = streaming.launch(self.settings, VIEWS[job], copies, ADDED.get(job, ""))
        self.running, self.deployed = (job, application), True
        count = len(VIEWS[job]) * copies
        passage = streaming.follow(self.settings, application, VIEWS[job], count, self.window)
        counted, sent = streaming.total(self.settings), in_log(self.settings, ["page_view"])
        if counted != sent:
            raise RuntimeError(f"{job}: counted {counted} of {sent} page views")
        return streaming.row(job, passage, self.window)

    def _end(self) -> None:
        if self.running is not None:
            self.running[1].end()
            self.running = None


# `--jobs` runs them in the order given.
JOBS: Mapping[str, Callable[[Suite], Iterable[Row]]] = {
    "archive": Suite.archive,
    "one_cube": Suite.one_cube,
    "each_once": Suite.each_once,
    "bare": Suite.bare,
    "quix": Suite.quix,
    "streams": Suite.streams,
    "flink": Suite.flink,
    "two_views": Suite.two_views,
    "eight_views": Suite.eight_views,
    "idle": Suite.idle,
    "four_views": Suite.four_views,
    "freshness": Suite.freshness,
    "killed": Suite.killed,
    "backlog": Suite.backlog,
    "reconcile": Suite.reconcile,
    "rebuild": Suite.rebuild,
    "duckdb": Suite.duckdb,
    "polars": Suite.polars,
    "collector": Suite.collector,
    "all_on": Suite.all_on,
    "fanout": Suite.fanout,
    "folding": Suite.folding,
    "history": Suite.history,
    "limits": Suite.limits,
    "reads": Suite.reads,
    "outputs": Suite.outputs,
    "pushes": Suite.pushes,
    "asks": Suite.asks,
    "commands": Suite.commands,
    "figures": Suite.figures,
    "notifications": Suite.notifications,
    "matches": Suite.matches,
    "backtest": Suite.backtest,
    "searches": Suite.searches,
    "matcher": Suite.matcher,
    "percolator": Suite.percolator,
    "stream_catalogue": Suite.stream_catalogue,
    "whole_four": Suite.whole_four,
    "whole_catalogue": Suite.whole_catalogue,
    "whole_fifty": Suite.whole_fifty,
    "five_views": Suite.five_views,
}
APART: Mapping[str, Mapping[str, str]] = {
    "fanout": {},
    "folding": {},
    "history": history.SETTINGS,
    "limits": {},
    "reads": {},
    "outputs": {},
    "pushes": {},
    "asks": {},
    "commands": {},
    "figures": {},
    "notifications": {},
    "matches": {},
    "backtest": {},
    "searches": {},
    "matcher": {},
    "percolator": {},
    "stream_catalogue": {},
    "whole_four": {},
    "whole_catalogue": {},
    "whole_fifty": {},
    "five_views": {},
}  # on a platform of its own, with these settings
QUICK = ("one_cube", "bare", "quix", "duckdb", "polars")
