"""Records how long each step of an application's recent batches took.

Spark defines the steps: `latestOffset` finds the end of the log, `walCommit` and `commitOffsets` write the range,
`queryPlanning` plans the query, `addBatch` is Truelog's work on the batch, and `triggerExecution` is the whole batch.
"""

import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import psycopg

from truelog.storage.database import Connection, connect
from truelog.support.background import Background
from truelog.support.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

_KEPT_BATCHES = 60  # per application
_POLL_SECONDS = 1.0

log = logging.getLogger("truelog.progress")


@dataclass(frozen=True)
class BatchSteps:
    """When a batch began, and the duration of each step in milliseconds."""

    at: datetime
    steps: Mapping[str, int]


@contextmanager
def collecting_steps(settings: Settings, application: str, query: "StreamingQuery") -> Iterator[None]:
    """Record the query's batches in a thread during the block, so that a hanging database cannot delay a stop."""
    thread = Background("progress", _Recorder(settings, application, query).poll, _POLL_SECONDS)
    thread.start()
    try:
        yield
    finally:
        thread.stop()


class _Recorder:
    """Records a query's newest batch at each poll. If several batches finish between polls, the others are missed."""

    def __init__(self, settings: Settings, application: str, query: "StreamingQuery") -> None:
        self._settings, self._application, self._query = settings, application, query
        self._connection: Connection | None = None
        self._recorded = ""

    def poll(self) -> None:
        """Record the newest batch. If the database is down, skip the batch; other code reports the outage."""
        progress = self._query.lastProgress
        if progress is None or progress["timestamp"] == self._recorded:
            return
        try:
            self._connection = self._connection or connect(self._settings, autocommit=True, writer=self._application)
            record_steps(self._connection, self._application, progress["timestamp"], progress["durationMs"])
            self._recorded = progress["timestamp"]
        except psycopg.Error as error:
            log.warning("the steps of a batch were not recorded: %s", error)
            self._connection = None


def record_steps(connection: Connection, application: str, at: str, steps: Mapping[str, int]) -> None:
    """Record a batch and delete the oldest beyond the limit; recording a batch twice changes nothing."""
    connection.execute(
        "INSERT INTO truelog.batch (application, at, steps) VALUES (%s, %s, %s) ON CONFLICT DO NOTHING",
        (application, at, json.dumps(dict(steps))),
    )
    connection.execute(
        "DELETE FROM truelog.batch WHERE application = %(application)s AND at < (SELECT at FROM truelog.batch "
        "WHERE application = %(application)s ORDER BY at DESC OFFSET %(kept)s LIMIT 1)",
        {"application": application, "kept": _KEPT_BATCHES - 1},
    )


def latest_steps(connection: Connection, application: str, limit: int) -> list[BatchSteps]:
    """The steps of recent batches, newest first."""
    rows: list[tuple[Any, ...]] = connection.execute(
        "SELECT at, steps FROM truelog.batch WHERE application = %s ORDER BY at DESC LIMIT %s", (application, limit)
    ).fetchall()
    return [BatchSteps(*row) for row in rows]
