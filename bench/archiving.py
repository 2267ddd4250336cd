"""The throughput of the archive application, from the beginning to the end of an existing log.

The application's batches are large, so the measurement starts when Spark begins the first batch and includes code
that Java has not compiled yet.
"""

import time

from bench.corpus import TOPICS, in_log
from bench.cpu import Meter, used
from bench.ground import services
from bench.row import OURS, Row
from tests.beat import first
from tests.scenes.applications import start
from truelog.archive.table import archived_positions
from truelog.log import topics
from truelog.support.settings import Settings

_LOOK_SECONDS = 0.1
_PATIENCE_SECONDS = 180.0
_SLOWEST = 4_000  # events per second; a slower archive exceeds its time limit


def run(settings: Settings) -> Row:
    """Measure how fast the application archives every topic, then stop it."""
    events = in_log(settings) - _archived(settings)
    within = _PATIENCE_SECONDS + events / _SLOWEST
    ends = topics.end_offsets(settings, TOPICS)
    started = time.time()
    application = start(settings, "archive.py", TRUELOG_ARCHIVE_TRIGGER_SECONDS="1")

    def has_begun() -> bool:
        if application.process.poll() is not None:
            raise RuntimeError(f"the archive application ended:\n{application.tail()}")
        return any((settings.home / "scratch" / "archive").glob("*/offsets/0"))

    first_batch = first(_LOOK_SECONDS, has_begun, within=within, what="the archive's first batch")
    meter = Meter(services(settings), application.process.pid)
    before = meter.read()
    done = first(
        _LOOK_SECONDS,
        lambda: archived_positions(settings, TOPICS).covers(ends),
        within=within,
        what="the archive",
    )
    cost = used(before, meter.read())
    application.end()
    return Row(
        "archive",
        OURS,
        events / (done - first_batch),
        "alone",
        "from the start of the first batch to the last commit",
        more={"events": events, "seconds": done - first_batch, "start_seconds": first_batch - started},
        guarantees="exactly once, committed in each batch",
        cpu_us_per_event=cost.per_event(events),
        other_cores=cost.other_cores,
    )


def catch_up(settings: Settings) -> None:
    """Archive what earlier jobs have sent, if anything."""
    if _archived(settings) < in_log(settings):
        run(settings)


def _archived(settings: Settings) -> int:
    """The number of records that an earlier job of the same run has archived."""
    return sum(sum(by.values()) for by in archived_positions(settings, TOPICS).offsets.values())
