"""The trace of a transaction of a view: all events of its merge belong to it.

A merge keeps the places of its records if they are few and nothing else can have changed rows. The relay reads their
headers, so that the merge does not wait for Kafka. Only recent transactions are read, so a relay that is behind catches
up without this work. A failure leaves the header out, so no row is lost for its trace.
"""

import json
import logging
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaException, Message

from truelog.log.kafka_reader import headers_of, open_reader, read_range
from truelog.log.positions import Range
from truelog.relay import trace
from truelog.relay.spans import Spans
from truelog.support.errors import ServiceDown
from truelog.support.settings import Settings

_RECENT = timedelta(seconds=3)  # or else rows could be so late for their traces
_SECONDS = 2.0  # for one partition
_QUICK = {"fetch.wait.max.ms": 10, "log_level": 0}
_PAUSE_SECONDS = 60.0  # after a failure, during which no trace is read

log = logging.getLogger(__name__)


class Transaction(NamedTuple):
    """A transaction of a view, with the number of its last row in the outbox."""

    view: str
    version: int
    last: int
    made_at: datetime


class StepTrace(NamedTuple):
    """The trace of a transaction: a `traceparent` of its events, those of other spans, and the log time of the last."""

    traceparent: str
    others: tuple[str, ...]
    logged_at: datetime


class StepTraces:
    """Reads the traces of transactions, over one connection that is kept."""

    def __init__(self, settings: Settings, spans: Spans | None = None) -> None:
        """`spans` are those of the relay."""
        self._settings, self.spans = settings, spans or Spans()
        self._consumer: Consumer | None = None
        self._begin_at = 0.0  # monotonic seconds
        self._last: tuple[str, StepTrace | None] = ("", None)  # the last transaction, whose rows follow each other

    def of(self, step: str, records: str | None, made_at: datetime) -> StepTrace | None:
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

    def _read(self, records: str) -> StepTrace | None:
        try:
            found = [each for one in json.loads(records) for each in self._messages(Range(*one))]
        except (KafkaException, ServiceDown) as error:
            log.warning("the traces of events are left out for %g s: %s", _PAUSE_SECONDS, error)
            self._begin_at = time.monotonic() + _PAUSE_SECONDS
            self.close()
            return None
        return _common(found)

    def _messages(self, wanted: Range) -> Iterator[Message]:
        """Each record of a range, which may have offsets without records."""
        consumer = self._consumer = self._consumer or open_reader(self._settings, **_QUICK)
        until = time.monotonic() + _SECONDS
        yield from read_range(consumer, wanted, lambda: max(0.0, until - time.monotonic()))
        consumer.unassign()  # or else the client would fetch on


def _common(messages: Sequence[Message]) -> StepTrace | None:
    """The trace that all these records belong to. The first sampled span of it counts, or else the first."""
    found = [trace.of_record(headers_of(each)) for each in messages]
    known = list(dict.fromkeys(each for each in found if each is not None))
    if None in found or len({trace.id_of(each) for each in known}) != 1:
        return None
    first = max(known, key=trace.is_sampled)
    logged_at = max(each.timestamp()[1] for each in messages)
    others = tuple(each for each in known if each != first)
    return StepTrace(first, others, datetime.fromtimestamp(logged_at / 1_000, UTC))
