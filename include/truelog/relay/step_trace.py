"""The trace of a transaction of a view: the `traceparent` that all events of its merge carry.

A merge keeps the places of its records if they are few and nothing else can have changed rows. The relay reads their
headers, so that the merge does not wait for Kafka. Only recent transactions are read, so a relay that is behind catches
up without this work. A failure leaves the header out, so no row is lost for its trace.
"""

import json
import logging
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from confluent_kafka import Consumer, KafkaException

from truelog.log.kafka_reader import headers_of, open_reader, read_range
from truelog.log.positions import Range
from truelog.relay import trace
from truelog.support.errors import ServiceDown
from truelog.support.settings import Settings

_RECENT = timedelta(seconds=3)  # or else rows could be so late for their traces
_SECONDS = 2.0  # for one partition
_QUICK = {"fetch.wait.max.ms": 10, "log_level": 0}
_PAUSE_SECONDS = 60.0  # after a failure, during which no trace is read

log = logging.getLogger(__name__)


class StepTraces:
    """Reads the traces of transactions, over one connection that is kept."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._consumer: Consumer | None = None
        self._begin_at = 0.0  # monotonic seconds
        self._last: tuple[str, str | None] = ("", None)  # the last transaction, whose rows follow each other

    def of(self, step: str, records: str | None, made_at: datetime) -> str | None:
        """The trace of the transaction `step`, whose merge kept these places of records; None if there is none."""
        if records is None or datetime.now(UTC) - made_at > _RECENT or time.monotonic() < self._begin_at:
            return None
        if self._last[0] != step:
            self._last = step, self._read(records)
        return self._last[1]

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    def _read(self, records: str) -> str | None:
        try:
            found = {each for one in json.loads(records) for each in self._traces(Range(*one))}
        except (KafkaException, ServiceDown) as error:
            log.warning("the traces of events are left out for %g s: %s", _PAUSE_SECONDS, error)
            self._begin_at = time.monotonic() + _PAUSE_SECONDS
            self.close()
            return None
        return found.pop() if len(found) == 1 else None

    def _traces(self, wanted: Range) -> Iterator[str | None]:
        """The trace of each record of a range, which may have offsets without records."""
        consumer = self._consumer = self._consumer or open_reader(self._settings, **_QUICK)
        until = time.monotonic() + _SECONDS
        for message in read_range(consumer, wanted, lambda: max(0.0, until - time.monotonic())):
            yield trace.of_record(headers_of(message))
        consumer.unassign()  # or else the client would fetch on
