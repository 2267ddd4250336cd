"""The speed of rebuilding the cube from the whole archive in a warm session.

The measurement covers the steps that DuckDB also performs: read, decode and add up. Loading the rows into PostgreSQL
is measured separately.
"""

import os
from dataclasses import replace
from statistics import median

from bench.corpus import in_log
from bench.cpu import DRIVER, JVM, WORKERS, Meter, Used, measured
from bench.ground import services
from bench.row import OURS, Row
from truelog.archive.table import archived_positions
from truelog.batch.batch_context import open_batch
from truelog.batch.rebuild import Rebuilder
from truelog.log.positions import Positions
from truelog.storage.database import connect
from truelog.support.settings import Settings

VIEW, VIEW_TOPIC = "page_views", "page_view"
TYPED, RAW = "rebuild from typed columns", "rebuild from raw bytes"

_TIMES = 3


def run(settings: Settings) -> list[Row]:
    """Rebuild from typed columns and from raw bytes, each once cold and then three times warm."""
    with (
        open_batch(settings, "truelog bench", [VIEW]) as context,
        connect(settings, autocommit=True) as connection,
    ):
        [compiled] = context.views.compiled
        positions = archived_positions(settings, compiled.view.topics)
        ways = {TYPED: False, RAW: True}
        makers = {job: Rebuilder(context, connection, compiled, from_raw) for job, from_raw in ways.items()}
        return [_row(settings, job, maker, positions) for job, maker in makers.items()]


def _row(settings: Settings, job: str, rebuilder: Rebuilder, positions: Positions) -> Row:
    meter = Meter(services(settings), os.getpid())
    cold, *warm = (measured(meter, lambda: _compute(rebuilder, positions)) for _ in range(1 + _TIMES))
    loaded = measured(meter, lambda: rebuilder.rebuild(positions))
    events = in_log(settings, [VIEW_TOPIC])
    usual = sorted(warm, key=lambda each: each.wall)[len(warm) // 2]
    return Row(
        job,
        OURS,
        events / median(each.wall for each in warm),
        "alone",
        f"the cube computed, median of {_TIMES}; cold_seconds: the first time; loaded_seconds: into PostgreSQL too",
        more={"events": events, "seconds": usual.wall, "cold_seconds": cold.wall, "loaded_seconds": loaded.wall},
        guarantees="at the exact positions of the archive",
        cpu_us_per_event=_own(usual, events),
        other_cores=usual.other_cores,
    )


def _own(used: Used, events: int) -> dict[str, float]:
    """Without the broker and the ticks, which a rebuild does not use."""
    kept = {name: used.seconds[name] for name in (JVM, WORKERS, DRIVER, "postgresql", "s3") if name in used.seconds}
    return replace(used, seconds=kept).per_event(events)


def _compute(rebuilder: Rebuilder, positions: Positions) -> None:
    rebuilder.states(rebuilder.compiled.own, positions).write.format("noop").mode("overwrite").save()
