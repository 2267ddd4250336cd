"""Batch work over 1, 10 and 100 log days: a recomputation, a comparison that reads everything, and an incremental one.

A log day lasts two seconds here, on a platform of its own. The events of each log day happened on another calendar
day, so that the rows of the view spread over as many days. The stream and the archive run and are caught up when a
measurement begins. All measurements use one warm Spark session.
"""

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial

from bench import streaming
from bench.cpu import Meter, used
from bench.row import OURS, Row
from tests.beat import first
from tests.scenes.applications import start
from truelog.archive import reader as archive_reader
from truelog.archive.table import archived_positions
from truelog.batch.batch_context import BatchContext, open_batch
from truelog.batch.recompute import recompute
from truelog.kernel import merge
from truelog.log import topics
from truelog.log.kafka_producer import make_producer
from truelog.reconcile.reconcile import reconcile
from truelog.reconcile.reconcile_result import ReconcileRequest
from truelog.storage.database import connect
from truelog.support.settings import Settings
from truelog.tables.compiled_view import CompiledView

SETTINGS = {"TRUELOG_LOG_DAY_SECONDS": "2", "TRUELOG_TICK_SECONDS": "0.5", "TRUELOG_BASE_ROWS": "1"}
DAYS = (1, 10, 100)

_OURSELVES = Meter({"bench": os.getpid()})  # services and applications are descendants of this process

_VIEW, _TOPIC = "page_views", "page_view"
_EVENTS = 20_000  # of each log day
_SINCE = 2_000  # events between two comparisons
_PATIENCE_SECONDS = 180.0
_JOBS: Mapping[str, ReconcileRequest] = {
    "comparison of everything": ReconcileRequest(),
    "the same, and writing a base": ReconcileRequest(incremental=True),
    "incremental comparison": ReconcileRequest(incremental=True),
}


def run(settings: Settings) -> Iterator[Row]:
    """Measure after each number of log days."""
    sent = 0
    with _applications(settings):
        for days in DAYS:
            for number in range(sent, days):
                _send(settings, number, _EVENTS)
                _wait_for_the_next_day(settings)
            sent = days
            with open_batch(settings, "truelog bench", [_VIEW]) as context:
                yield from History(settings, context, context.views.compiled[0], days).run()


@contextmanager
def _applications(settings: Settings) -> Iterator[None]:
    running = [
        start(settings, "archive.py", TRUELOG_ARCHIVE_TRIGGER_SECONDS="1"),
        streaming.launch(settings, [_VIEW]),
    ]
    try:
        yield
    finally:
        for each in running:
            each.end()


@dataclass(frozen=True)
class History:
    """The measurements of a log of so many days."""

    settings: Settings
    context: BatchContext
    compiled: CompiledView
    days: int

    def run(self) -> Iterator[Row]:
        closed = archive_reader.closed_days(self.settings, [_TOPIC])
        self._catch_up()
        yield self._row("recomputation", lambda: [recompute(self.context, self.compiled, day) for day in closed])
        for job, request in _JOBS.items():
            self._catch_up()
            yield self._row(job, partial(self._compare, request))
            _send(self.settings, self.days, _SINCE)

    def _compare(self, request: ReconcileRequest) -> None:
        found = reconcile(self.context, self.compiled, request)
        if not found.equal:
            raise RuntimeError(f"{found.view} is {found.verdict}: {found.reason}")

    def _row(self, job: str, work: Callable[[], object]) -> Row:
        before = _OURSELVES.read()
        work()
        cost, events = used(before, _OURSELVES.read()), self.days * _EVENTS
        return Row(
            f"{job}, {self.days} log days" if self.days > 1 else f"{job}, 1 log day",
            OURS,
            events / cost.wall,
            "alone",
            f"one view, {_EVENTS} events a log day; beside the idle stream and archive",
            more={"events": events, "seconds": cost.wall},
            other_cores=cost.other_cores,
        )

    def _catch_up(self) -> None:
        """Wait until the view and the archive have everything."""
        ends = topics.end_offsets(self.settings, [_TOPIC])

        def is_done() -> bool:
            with connect(self.settings) as connection:
                read = merge.positions(connection, self.compiled)
            return read.covers(ends) and archived_positions(self.settings, [_TOPIC]).covers(ends)

        first(0.2, is_done, within=_PATIENCE_SECONDS, what=f"{self.days} log days in the view and the archive")


def _send(settings: Settings, number: int, events: int) -> None:
    """Send events that happened on one calendar day, spread over its minutes and 200 pages."""
    day = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=2 * max(DAYS) - number)
    kafka = make_producer(settings)
    for each in range(events):
        event = {
            "event_id": f"{number}-{time.monotonic_ns()}",
            "occurred_at": (day + timedelta(seconds=each % 86_400)).isoformat().replace("+00:00", "Z"),
            "visitor_id": f"visitor {each % 997}",
            "url": f"https://shop.example/item/{each % 200}",
            "browser": "Firefox",
            "bytes": each,
        }
        kafka.produce(_TOPIC, json.dumps(event), f"visitor {each % 997}")
        if each % 1_000 == 0:
            kafka.poll(0)
    kafka.flush(_PATIENCE_SECONDS)


def _wait_for_the_next_day(settings: Settings) -> None:
    seconds = settings.log_day_seconds
    today = time.time() // seconds
    first(0.05, lambda: time.time() // seconds > today, within=2 * seconds, what="the next log day")
