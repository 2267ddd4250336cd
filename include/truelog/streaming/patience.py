"""Lets an application outlive an outage of PostgreSQL, Kafka or S3: it plans again, for two minutes.

The application notices an unresponsive service while planning. The failure of a query says less about its cause, so a
failed query is planned again once. If it fails again before a batch has ended, the application exits.
"""

import logging
import threading
import time

import psycopg
from botocore.exceptions import BotoCoreError, ClientError
from pyspark.errors import StreamingQueryException
from sqlalchemy.exc import SQLAlchemyError

from truelog.control.lease import RETAKE_SECONDS, Lease
from truelog.support.errors import LeaseInterrupted, ServiceDown

# PyArrow reports an outage of S3 as OSError, and boto3 as one of its own errors.
OUTAGES = (
    psycopg.OperationalError,
    SQLAlchemyError,
    ServiceDown,
    LeaseInterrupted,
    OSError,
    BotoCoreError,
    ClientError,
    StreamingQueryException,
)

log = logging.getLogger("truelog.outage")


class Patience:
    """How long one application has failed without a batch in between."""

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
        reason = str(error).partition("\n")[0]
        log.warning(
            "%s waits for its services after %s: %s", self.lease.holder.application, type(error).__name__, reason
        )
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
        """A batch has ended."""
        self._failing_since, self._query_failed = None, False
