"""The spans of requests to the collector. One begins when a request arrives, and ends when Kafka has its records.

A request has one span for each sampled trace of its events, which is one unless CloudEvents have traces of their own.
The records carry the `traceparent` of their span instead of the sender's, so what follows is below this span. A request
has a limited number of spans, because each takes time of the event loop. The records of further traces keep the
sender's `traceparent`.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from truelog.relay import trace
from truelog.relay.spans import Attributes, Span, Spans
from truelog.sources.collector.classifier import ClassifiedRecord
from truelog.sources.collector.producer import PartitionOffset

MOST_SPANS = 100  # of a request; each takes about 50 µs


@dataclass
class Traced:
    """What goes to Kafka: the records of a request and their common headers. `offsets` are set after that."""

    records: Sequence[ClassifiedRecord]
    headers: Mapping[str, bytes]
    offsets: Sequence[PartitionOffset] = ()
    spans: list[tuple[Span, list[int]]] = field(default_factory=list)  # each with the indexes of its records


@contextmanager
def collecting(
    spans: Spans, records: Sequence[ClassifiedRecord], headers: Mapping[str, bytes], began: int
) -> Iterator[Traced]:
    """The spans of a request that arrived at `began`, in nanoseconds since 1970, while its records go to Kafka."""
    traced = Traced(records, headers)
    if spans.enabled:
        _begin(spans, traced, began)
    try:
        yield traced
    except BaseException as error:
        for span, _ in traced.spans:
            span.fail(error)
        raise
    for span, indexes in traced.spans:
        span.end(_attributes(traced, indexes))


def _begin(spans: Spans, traced: Traced, began: int) -> None:
    request = traced.headers.get(trace.NAME, b"").decode()
    if not trace.is_sampled(request) and not any(record.trace for record in traced.records):
        return
    changed = list(traced.records)
    for parent, indexes in _by_parent(traced.records, request).items():
        if len(traced.spans) == MOST_SPANS:
            break
        topics = {traced.records[each].topic for each in indexes}
        name = f"collect {topics.pop()}" if len(topics) == 1 else "collect"
        if (span := spans.begin(name, parent, "SERVER", at=began)) is None:
            continue
        traced.spans.append((span, indexes))
        if parent == request:
            traced.headers = {**traced.headers, trace.NAME: span.traceparent.encode()}
        for each in indexes:
            if changed[each].trace:
                changed[each] = replace(changed[each], trace=span.traceparent)
    traced.records = changed


def _by_parent(records: Sequence[ClassifiedRecord], request: str) -> Mapping[str, list[int]]:
    """The indexes of the records of each trace. A valid trace of the record itself goes before that of the request."""
    found: dict[str, list[int]] = {}
    for index, record in enumerate(records):
        parent = record.trace.strip() if trace.record_headers(record.trace) else request
        found.setdefault(parent, []).append(index)
    return found


def _attributes(traced: Traced, indexes: Sequence[int]) -> Attributes:
    records = [traced.records[each] for each in indexes]
    topics = sorted({each.topic for each in records})
    found: dict[str, str | int | float] = {
        "messaging.system": "kafka",
        "messaging.destination.name": ",".join(topics),
        "messaging.batch.message_count": len(records),
        "truelog.bad_events": sum(each.defect is not None for each in records),
    }
    if len(indexes) == 1 and indexes[0] < len(traced.offsets):
        partition, offset = traced.offsets[indexes[0]]
        found |= {"messaging.destination.partition.id": str(partition), "messaging.kafka.offset": offset}
    return found
