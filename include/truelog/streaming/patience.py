"""Lets an application outlive an outage of PostgreSQL, Kafka or S3: it plans again, for five minutes.

The application notices an unresponsive service while planning, or before that, while it starts. The failure of a query
says less about its cause, so a failed query is planned again once. If it fails again before a batch has ended, the
application exits. An application that can read no topic has no batch, so a plan is its progress.
"""

import logging
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from pyspark.errors import StreamingQueryException

from truelog.control.lease import RETAKE_SECONDS, Lease
from truelog.storage import outages
from truelog.support.errors import LeaseInterrupted
from truelog.support.wait import outlast

OUTAGES = (*outages.OUTAGES, LeaseInterrupted, StreamingQueryException)

log = logging.getLogger("truelog.outage")

_Result = TypeVar("_Result")


def outlast_outage(
    work: Callable[[], _Result], stop: threading.Event, meanwhile: Callable[[], object] = lambda: None
) -> _Result:
    """Do what an application needs before it has a lease. If a service does not answer, try again for five minutes."""
    return outlast(work, stop, OUTAGES, RETAKE_SECONDS, meanwhile)


class Patience:
    """How long one application has failed without progress in between."""

    def __init__(self, lease: Lease, stop: threading.Event) -> None:
        self.lease, self._stop = lease, stop
        self._interruptions = lease.interruptions
        self._failing_since: float | None = None
        self._query_failed = False

    def wait(self, error: Exception) -> None:
        """Wait before the next attempt, until the lease is held.

        Raises:
            Exception: `error`, if the application has tried for long enough, or if its own Java process has ended.
        """
        if isinstance(error, ConnectionError):  # py4j's error; clients of services raise their own
            raise error
        name, kind = self.lease.holder.application, type(error).__name__
        log.warning("%s waits for its services after %s: %s", name, kind, str(error).partition("\n")[0])
        self._failing_since = self._failing_since or time.monotonic()
        patient = time.monotonic() - self._failing_since < RETAKE_SECONDS
        interrupted = self.lease.outlast(self._interruptions, self._stop)
        self._interruptions = self.lease.interruptions
        if isinstance(error, StreamingQueryException):
            patient = patient and (interrupted or not self._query_failed)
            self._query_failed = True
        if not patient:
            raise error

    def progressed(self) -> None:
        """A batch has ended, or a plan without a batch."""
        self._failing_since, self._query_failed = None, False
