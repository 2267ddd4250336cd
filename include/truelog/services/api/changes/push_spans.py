"""The spans of pushed transactions: `push`, from the transaction until its changes were in the queues of subscribers.

The relay finds out whether a transaction is of a sampled trace, and usually later than the API pushes it. So the API
remembers for some seconds what it has pushed, and asks once a second. It does so only if there is a receiver of spans.
"""

import time
from collections import deque
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from psycopg_pool import AsyncConnectionPool

from truelog.relay.spans import Spans, nanoseconds
from truelog.services.api.changes.step import Step

_LOOK_SECONDS = 1.0
_KEPT = timedelta(seconds=10)  # the relay reads no trace of a transaction that is older than three seconds
_MOST = 10_000  # transactions that are remembered

_TRACES = """
SELECT view, version, last, traceparent FROM truelog.published_trace
JOIN unnest(%(views)s::text[], %(versions)s::integer[], %(lasts)s::bigint[]) AS pushed (view, version, last)
    USING (view, version, last)
"""


class _Pushed(NamedTuple):
    """A transaction, and when it was pushed to how many subscribers."""

    made_at: datetime
    at: datetime
    subscribers: int


class PushSpans:
    """The spans of what this process pushes."""

    def __init__(self, spans: Spans, pool: AsyncConnectionPool) -> None:
        self._spans, self._pool = spans, pool
        self._waiting: deque[tuple[tuple[str, int, int], _Pushed]] = deque(maxlen=_MOST)
        self._look_at = 0.0  # monotonic seconds

    def pushed(self, view: str, step: Step, subscribers: int) -> None:
        """Remember a transaction that at least one subscriber got."""
        if subscribers and self._spans.enabled:
            key = view, step.place.version, step.place.number
            self._waiting.append((key, _Pushed(step.made_at, datetime.now(UTC), subscribers)))

    async def look(self, *, at_once: bool = False) -> None:
        """Make the spans of sampled transactions, if it is time for that. Raises the errors of psycopg."""
        if not self._waiting or (time.monotonic() < self._look_at and not at_once):
            return
        self._look_at = time.monotonic() + _LOOK_SECONDS
        views, versions, lasts = zip(*(key for key, _ in self._waiting), strict=True)
        given = {"views": [*views], "versions": [*versions], "lasts": [*lasts]}
        async with self._pool.connection() as connection:
            cursor = await connection.execute(_TRACES, given)
            traces = {(view, version, last): found for view, version, last, found in await cursor.fetchall()}
        oldest = datetime.now(UTC) - _KEPT
        for key, pushed in self._waiting:
            if key in traces:
                self._make(key, pushed, traces[key])
        kept = [each for each in self._waiting if each[0] not in traces and each[1].at > oldest]
        self._waiting = deque(kept, maxlen=_MOST)

    def close(self) -> None:
        """Send what is in the queue."""
        self._spans.close()

    def _make(self, key: tuple[str, int, int], pushed: _Pushed, parent: str) -> None:
        view, version, number = key
        span = self._spans.begin(f"push {view}", parent, "PRODUCER", at=nanoseconds(pushed.made_at))
        if span is not None:
            about = {"truelog.version": version, "truelog.number": number, "truelog.subscribers": pushed.subscribers}
            span.end({"truelog.view": view, **about}, max(pushed.at, pushed.made_at))
