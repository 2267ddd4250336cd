"""The throughput of the archive application, from the beginning to the end of an existing log.

The application's batches are large, so the measurement starts when Spark begins the first batch and includes code
that Java has not compiled yet.
"""

import time

from tests.bench.beat import first
from tests.bench.corpus import TOPICS, Corpus
from tests.bench.row import OURS, Row
from tests.scenes.applications import start
from truelog.archive.archive_table import archived_positions
from truelog.log import topics
from truelog.support.settings import Settings

_LOOK_SECONDS = 0.1
_WITHIN_SECONDS = 180.0


def run(settings: Settings, corpus: Corpus) -> Row:
    """Measure how fast the application archives every topic, then stop it."""
    ends = topics.end_offsets(settings, TOPICS)
    started = time.time()
    application = start(settings, "archive.py", TRUELOG_ARCHIVE_TRIGGER_SECONDS="1")

    def has_begun() -> bool:
        if application.process.poll() is not None:
            raise RuntimeError(f"the archive application ended:\n{application.tail()}")
        return any((settings.home / "scratch" / "archive").glob("*/offsets/0"))

    first_batch = first(_LOOK_SECONDS, has_begun, within=_WITHIN_SECONDS, what="the archive's first batch")
    done = first(
        _LOOK_SECONDS,
        lambda: archived_positions(settings, TOPICS).covers(ends),
        within=_WITHIN_SECONDS,
        what="the archive",
    )
    application.end()
    return Row(
        "archive",
        OURS,
        corpus.events / (done - first_batch),
        "alone",
        "from the start of the first batch to the last commit",
        more={"events": corpus.events, "start_seconds": first_batch - started},
    )
