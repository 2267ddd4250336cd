"""Progress: of the last batches of each application it is kept how long each of their steps took.

The steps are Spark's own: `latestOffset` asks where the log ends, `walCommit` and `commitOffsets` write down the range,
`queryPlanning` plans, `addBatch` is our work on the batch, `triggerExecution` all of it.
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

_KEPT = 60  # batches of each application
_LOOK_SECONDS = 1.0

log = logging.getLogger("truelog.progress")


@dataclass(frozen=True)
class BatchSteps:
    """When a batch began, and the milliseconds that each of its steps took."""

    at: datetime
    steps: Mapping[str, int]


@contextmanager
def collecting_steps(settings: Settings, application: str, query: "StreamingQuery") -> Iterator[None]:
    """Meanwhile batches are noted, by a thread: a database that hangs keeps nobody from seeing that he is to stop."""
    thread = Background("progress", _Keeper(settings, application, query).look, _LOOK_SECONDS)
    thread.start()
    try:
        yield
    finally:
        thread.stop()


class _Keeper:
    """Notes the last batch of a query: where several ended between two looks, the others are not seen."""

    def __init__(self, settings: Settings, application: str, query: "StreamingQuery") -> None:
        self._settings, self._application, self._query = settings, application, query
        self._connection: Connection | None = None
        self._noted = ""

    def look(self) -> None:
        """What cannot be noted is left out: that the database is away is seen by whoever needs it."""
        progress = self._query.lastProgress
        if progress is None or progress["timestamp"] == self._noted:
            return
        try:
            self._connection = self._connection or connect(self._settings, autocommit=True, writer=self._application)
            record_steps(self._connection, self._application, progress["timestamp"], progress["durationMs"])
            self._noted = progress["timestamp"]
        except psycopg.Error as away:
            log.warning("the steps of a batch are not kept: %s", away)
            self._connection = None


def record_steps(connection: Connection, application: str, at: str, steps: Mapping[str, int]) -> None:
    """One batch more, and what is too many are forgotten; noting one twice changes nothing."""
    connection.execute(
        "INSERT INTO truelog.batch (application, at, steps) VALUES (%s, %s, %s) ON CONFLICT DO NOTHING",
        (application, at, json.dumps(dict(steps))),
    )
    connection.execute(
        "DELETE FROM truelog.batch WHERE application = %(of)s AND at < (SELECT at FROM truelog.batch "
        "WHERE application = %(of)s ORDER BY at DESC OFFSET %(kept)s LIMIT 1)",
        {"of": application, "kept": _KEPT - 1},
    )


def latest_steps(connection: Connection, application: str, limit: int) -> list[BatchSteps]:
    """The newest first."""
    rows: list[tuple[Any, ...]] = connection.execute(
        "SELECT at, steps FROM truelog.batch WHERE application = %s ORDER BY at DESC LIMIT %s", (application, limit)
    ).fetchall()
    return [BatchSteps(*row) for row in rows]
