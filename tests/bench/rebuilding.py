"""The speed of rebuilding the cube from the whole archive in a warm session.

The measurement covers the steps that DuckDB also performs: read, decode and add up. Loading the rows into PostgreSQL
is measured separately.
"""

import time
from collections.abc import Callable
from statistics import median

from tests.bench.corpus import Corpus
from tests.bench.row import OURS, Row
from truelog.archive.archive_table import archived_positions
from truelog.batch.batch_context import open_batch
from truelog.batch.rebuild import Rebuilder
from truelog.log.positions import Positions
from truelog.storage.database import connect
from truelog.support.settings import Settings

VIEW = "page_views"
TYPED, RAW = "rebuild from typed columns", "rebuild from raw bytes"

_TIMES = 3


def run(settings: Settings, corpus: Corpus) -> list[Row]:
    """Rebuild from typed columns and from raw bytes, each once cold and then three times warm."""
    with (
        open_batch(settings, "truelog bench", [VIEW]) as context,
        connect(settings, autocommit=True) as connection,
    ):
        [compiled] = context.views.compiled
        positions = archived_positions(settings, compiled.view.topics)
        ways = {TYPED: False, RAW: True}
        makers = {job: Rebuilder(context, connection, compiled, from_raw) for job, from_raw in ways.items()}
        return [_row(job, corpus, maker, positions) for job, maker in makers.items()]


def _row(job: str, corpus: Corpus, rebuilder: Rebuilder, positions: Positions) -> Row:
    cold, *warm = (_seconds(lambda: _compute(rebuilder, positions)) for _ in range(1 + _TIMES))
    events = corpus.counts["page_view"]
    return Row(
        job,
        OURS,
        events / median(warm),
        "alone",
        f"the cube computed, median of {_TIMES}; cold_seconds: the first time; loaded_seconds: into PostgreSQL too",
        more={
            "events": events,
            "seconds": median(warm),
            "cold_seconds": cold,
            "loaded_seconds": _seconds(lambda: rebuilder.rebuild(positions)),
        },
    )


def _compute(rebuilder: Rebuilder, positions: Positions) -> None:
    rebuilder.states(positions).write.format("noop").mode("overwrite").save()


def _seconds(run: Callable[[], None]) -> float:
    began = time.perf_counter()
    run()
    return time.perf_counter() - began
