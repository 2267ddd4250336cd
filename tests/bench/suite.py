"""The jobs in order, and the engines that they are compared with. All jobs use the same platform and corpus.

1. the archive, from the beginning of the log
2. the stream into one cube, then Quix Streams on the same topic
3. the stream into all views: with sums only, then with sketches
4. freshness, while the stream from step 3 is still running
5. the rebuild from the archive, then DuckDB on the same bytes
6. the collector
7. freshness and the collector again, while the whole platform is running, including Airflow
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from tests.bench import archiving, collecting, freshness, rebuilding, streaming
from tests.bench.corpus import RATE, Corpus
from tests.bench.ground import complete, forget_views
from tests.bench.peers import Peers
from tests.bench.row import Row, beside
from tests.scenes.applications import Application
from truelog.support.settings import Settings

ONE, SUMS, SKETCHES = "stream into one cube", "stream into all views, sums only", "stream into all views, with sketches"
VIEWS = {
    ONE: ("page_views",),
    SUMS: ("page_views", "request_rates", "click_through"),
    SKETCHES: ("page_views", "request_rates", "click_through", "page_audience"),
}

log = logging.getLogger("truelog.bench")


@dataclass
class Suite:
    """One benchmark run; `rows` are the results so far."""

    settings: Settings
    corpus: Corpus
    seconds: float  # duration of each freshness or collector measurement
    peers: Peers = field(default_factory=Peers)
    rows: list[Row] = field(default_factory=list)

    def run(self, chosen: Iterable[str]) -> None:
        for name in chosen:
            log.info("%s …", name)
            for row in JOBS[name](self):
                log.info("%s, %s: %.0f events/s", row.job, row.engine, row.events_per_second)
                self.rows.append(row)

    def archive(self) -> list[Row]:
        return [archiving.run(self.settings, self.corpus)]

    def stream_one(self) -> list[Row]:
        ours = self._streamed(ONE)
        return [ours, beside(ours, self.peers.quix(self.settings, ONE))]

    def stream_sums(self) -> list[Row]:
        return [self._streamed(SUMS)]

    def stream_sketches(self) -> list[Row]:
        """Measure the stream, then freshness on the same application, which has read the whole log by then."""
        application = self._launched(SKETCHES)
        row = self._passed(SKETCHES, application)
        fresh = freshness.run(self.settings, rate=RATE, seconds=self.seconds, ran="alone")
        application.end()
        return [row, *fresh]

    def rebuild(self) -> list[Row]:
        ours = rebuilding.run(self.settings, self.corpus)
        peer = {row.job: self.peers.duckdb(self.corpus, row.job) for row in ours}
        return [each for row in ours for each in (row, beside(row, peer[row.job]))]

    def collector(self) -> list[Row]:
        return [collecting.run(self.settings, seconds=self.seconds, ran="alone")]

    def all_on(self) -> list[Row]:
        complete(self.settings)
        fresh = freshness.run(self.settings, rate=RATE, seconds=self.seconds, ran="all on")
        return [*fresh, collecting.run(self.settings, seconds=self.seconds, ran="all on")]

    def _streamed(self, job: str) -> Row:
        application = self._launched(job)
        row = self._passed(job, application)
        application.end()
        return row

    def _launched(self, job: str) -> Application:
        forget_views(self.settings)
        return streaming.launch(self.settings, VIEWS[job])

    def _passed(self, job: str, application: Application) -> Row:
        passage = streaming.follow(self.settings, application, VIEWS[job], self.corpus)
        counted = streaming.total(self.settings)
        if counted != self.corpus.counts["page_view"]:
            raise RuntimeError(f"{job}: counted {counted} of {self.corpus.counts['page_view']} page views")
        return streaming.row(job, passage)


JOBS: Mapping[str, Callable[[Suite], list[Row]]] = {
    "archive": Suite.archive,
    "stream": Suite.stream_one,
    "sums": Suite.stream_sums,
    "sketches": Suite.stream_sketches,
    "rebuild": Suite.rebuild,
    "collector": Suite.collector,
    "all-on": Suite.all_on,
}
