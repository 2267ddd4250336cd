"""The spans of a transaction of a view whose events are of one sampled trace: `merge` and, below it, `publish`.

The relay makes both, after the fact: the times of the log and of the transaction are known. So a merge has no work with
them, whether an event is sampled or not.
"""

from collections.abc import Callable

from confluent_kafka import KafkaError, Message

from truelog.relay.spans import Attributes, Span, Spans, nanoseconds, now
from truelog.relay.step_trace import StepTrace, Transaction


class PublishSpan:
    """The span of the rows of a transaction that one transaction of Kafka publishes, and that of their merge."""

    def __init__(self, merge: Span, publish: Span, found: StepTrace, step: Transaction, rows: int) -> None:
        self._merge, self._publish = merge, publish
        self._found, self._step, self._rows = found, step, rows
        self._delivered: dict[str, str | int | float] = {}  # where the last record is
        self.on_published: Callable[[PublishSpan], object] = lambda _: None
        self.traceparent = publish.traceparent

    @property
    def of_merge(self) -> str:
        """The `traceparent` of the merge."""
        return self._merge.traceparent

    def delivered(self, error: KafkaError | None, message: Message) -> None:
        """Remember where a record is. Kafka's client calls this function."""
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        if error is None and topic is not None and partition is not None and offset is not None:
            self._delivered = {
                "messaging.destination.name": topic,
                "messaging.destination.partition.id": str(partition),
                "messaging.kafka.offset": offset,
            }

    def published(self) -> None:
        """End both spans: readers of committed records see the rows."""
        step, logged_at = self._step, self._found.logged_at
        about: Attributes = {"truelog.view": step.view, "truelog.version": step.version, "truelog.number": step.last}
        self._merge.end(about, max(step.made_at, logged_at))
        waited = (now() - nanoseconds(logged_at)) / 10**9
        more: Attributes = {"truelog.rows": self._rows, "truelog.seconds_since_log": waited}
        self._publish.end({"messaging.system": "kafka", **about, **more, **self._delivered})
        self.on_published(self)


def begin_publish(spans: Spans, found: StepTrace, step: Transaction, rows: int) -> PublishSpan | None:
    """The spans of these rows of a transaction. None if the trace is not sampled, or if there is no receiver."""
    logged = nanoseconds(found.logged_at)
    merge = spans.begin(f"merge {step.view}", found.traceparent, "CONSUMER", at=logged, links=found.others)
    if merge is None:
        return None
    publish = spans.begin(f"publish {step.view}", merge.traceparent, "PRODUCER")
    return PublishSpan(merge, publish, found, step, rows) if publish else None
