"""Runs a query until it fails, must stop, or must be replaced because what the application follows has changed.

A changed declaration or a topic that has become bad or good again does not restart the process. The application ends
its query between two batches, plans again and starts a new query in the same process, under the same lease.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pyspark.errors import StreamingQueryException

from truelog.control import application, event_registry
from truelog.schema.loading import trial
from truelog.storage.database import Connection, connect
from truelog.streaming import batch_metrics
from truelog.support.background import Background
from truelog.support.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

_POLL_SECONDS = 1.0
_STOP_SECONDS = 5.0
_FAILURE_LOOKS = 3  # Spark may notice a deleted topic before the brokers' metadata shows it

Versions = dict[str, tuple[str, int, int]]

log = logging.getLogger("truelog.change")


class BatchGate:
    """Lets a query's batches run one at a time until the gate is closed. Closing waits for the batch in progress."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._closed = False

    @contextmanager
    def batch(self) -> Iterator[bool]:
        """True if the batch may run. A batch that begins after the gate was closed must do nothing."""
        with self._lock:
            yield not self._closed

    def close(self) -> None:
        with self._lock:
            self._closed = True


class ChangeWatch:
    """Looks for changes in a thread of its own, so that no outage delays a batch or a stop.

    Create it before the declarations are read. `changed_topics` returns what has changed in the health of the topics,
    or an empty string. `changed_versions` returns what has changed in the versions of views that should run.
    """

    def __init__(
        self,
        settings: Settings,
        name: str,
        changed_topics: Callable[[], str],
        changed_versions: Callable[[Connection], str] = lambda _: "",
    ) -> None:
        self._settings, self._application, self._changed_topics = settings, name, changed_topics
        self._changed_versions = changed_versions
        self._views = application.declarations_digest(settings)
        self._connection: Connection | None = None
        self._versions = self._newest_versions()
        self._disconnect()  # the application may fail before it looks for changes
        self._topics_due = time.monotonic() + settings.topic_check_seconds
        self._found = ""

    def follow(self, query: "StreamingQuery", gate: BatchGate, stop: threading.Event) -> None:
        """Run the query until `stop` is set or something has changed, and end it between two batches.

        Raises:
            StreamingQueryException: the query failed, and no change explains the failure.
            RuntimeError: the thread that looks for changes has ended, so the application must start again.
        """
        looking = Background("changes", self._look, _POLL_SECONDS, self._disconnect)
        looking.start()
        failed: StreamingQueryException | None = None
        with batch_metrics.collecting_steps(self._settings, self._application, query):
            try:
                while not (stop.is_set() or self._found or query.awaitTermination(1)):
                    if not looking.is_alive():
                        raise RuntimeError("the thread that looks for changes has ended; its error is above")
            except StreamingQueryException as error:
                failed = error
        looking.stop(_STOP_SECONDS)
        has_ended = not looking.is_alive()  # otherwise it still uses the connection, and closes it when it ends
        explained = failed is None or (has_ended and self._explains_failure(stop))
        if has_ended:
            self._disconnect()
        if failed is not None and not explained:
            raise failed
        if self._found:
            gate.close()
            log.info("%s plans again: %s", self._application, self._found)
        query.stop()

    def wait(self, stop: threading.Event) -> None:
        """Wait until `stop` is set or something has changed; for an application that can read no topic at all."""
        while not stop.wait(_POLL_SECONDS) and not self._found:
            self._look()
        self._disconnect()

    def _explains_failure(self, stop: threading.Event) -> bool:
        for _ in range(_FAILURE_LOOKS):
            self._topics_due = 0.0
            self._look()
            if self._found or stop.wait(_POLL_SECONDS):
                break
        return bool(self._found)

    def _look(self) -> None:
        """Look for a change. After an error of any kind, no change is known, and later looks go on.

        Each service has errors of its own. If one of them ended the watch, no new event type would be read.
        """
        try:
            if application.declarations_digest(self._settings) != self._views:
                self._found = "views have changed"
            elif self._newest_versions() != self._versions:
                self._found = "an event type has another version"
            elif found := self._changed_versions(self._open()):
                self._found = found
            elif time.monotonic() >= self._topics_due:
                self._topics_due = time.monotonic() + self._settings.topic_check_seconds
                self._found = self._changed_topics()
            if not self._found and trial.has_caught_up():  # last, because a trial takes long
                self._found = "a declaration that the machine was too busy to load has had its trial"
        except Exception as error:
            log.warning("changes are unknown: %s: %s", type(error).__name__, error)
            self._disconnect()

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def _newest_versions(self) -> Versions:
        return event_registry.newest_versions(self._open())

    def _open(self) -> Connection:
        self._connection = self._connection or connect(self._settings, autocommit=True)
        return self._connection
