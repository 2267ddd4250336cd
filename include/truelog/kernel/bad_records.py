"""Bad records: records on which a view's transform fails, found by group testing.

A transform should be total (`try_*` functions). If it is not, a single hostile record would stop the view forever
unless the record is excluded. A value that PostgreSQL cannot store fails in the same way (`columns.clean`).

To find k bad records among n takes O(k log n) probes. Each probe transforms a range of records, which Spark keeps.
Many bad records mean a broken transform, which must not be mistaken for bad data. The view then stalls, and no record
is excluded.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import reduce
from typing import TypeVar

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from truelog.kernel.exclusions import Excluded
from truelog.log.records import Coordinates, EventFrames
from truelog.schema.names import COORDINATES
from truelog.tables.compiled_view import CompiledView
from truelog.tables.staging.value_error import FAILURES, is_value_error, reason

_MAX_BAD_RECORDS, _MAX_BAD_SHARE = 100, 0.01  # of a batch: more than both mean broken code, not broken records
_SAMPLE = 24  # if all records of a random sample are bad, more than half of the records are bad
_INFERRED = "inferred"  # the reason of a span that must be bad, because the rest of a bad span is good

_T = TypeVar("_T")


@dataclass(frozen=True)
class _Span:
    """The records of a partition from one offset to another, both included; `records` is known for whole partitions."""

    topic: str
    partition: int
    first: int
    last: int
    records: int = 0


def exclude_and_retry(
    compiled: CompiledView, events: Callable[[], EventFrames], attempt: Callable[[Sequence[Excluded]], _T]
) -> _T:
    """Run `attempt`; if the transform fails on some events, run `attempt` again without these records.

    `attempt` receives the records to leave out, and none the first time. `events` is called only after a failure.

    Raises: the first error, if no single record causes it or if there are too many bad records.
    """
    try:
        return attempt(())
    except FAILURES as error:
        if not is_value_error(error):
            raise
        with _kept(compiled, events()) as kept:
            return attempt(_find_bad_records(compiled, kept, error))


@contextmanager
def _kept(compiled: CompiledView, events: EventFrames) -> Iterator[EventFrames]:
    """The events that the view reads, which Spark keeps from their first reading on."""
    kept = {topic: events[topic].persist() for topic in compiled.view.reads}
    try:
        yield kept
    finally:
        for frame in kept.values():
            frame.unpersist()


def _find_bad_records(compiled: CompiledView, events: EventFrames, error: Exception) -> list[Excluded]:
    """Find the records on which the transform fails; raise `error` if there are none or too many."""
    spans = _spans(compiled, events)
    limit = max(_MAX_BAD_RECORDS, int(_MAX_BAD_SHARE * sum(span.records for span in spans)))
    if _mostly_bad(compiled, events, spans, limit):
        raise error
    bad_records: list[Excluded] = []
    for span in spans:
        for bad in _search(compiled, events, span):
            bad_records.append(bad)
            if len(bad_records) > limit:
                raise error
    if not bad_records:
        raise error
    return bad_records


def _mostly_bad(compiled: CompiledView, events: EventFrames, spans: Sequence["_Span"], limit: int) -> bool:
    """Whether more than half of the records are bad, and these are too many; saves thousands of probes."""
    if sum(span.records for span in spans) <= 2 * limit:
        return False
    chosen = random.choices(spans, weights=[span.records for span in spans], k=_SAMPLE)  # noqa: S311
    offsets = [(each, random.randint(each.first, each.last)) for each in chosen]  # noqa: S311
    return all(_failure(compiled, events, replace(each, first=o, last=o)) is not None for each, o in offsets)


def unfounded_exclusions(
    compiled: CompiledView, events: EventFrames, excluded: Sequence[Coordinates]
) -> list[Coordinates]:
    """The excluded coordinates where the transform does not fail or where there is no event."""
    with _kept(compiled, events) as kept:
        return [(t, p, o) for t, p, o in excluded if _failure(compiled, kept, _Span(t, p, o, o)) is None]


def _spans(compiled: CompiledView, events: EventFrames) -> list[_Span]:
    """The first and last offsets of each partition, and the number of records."""
    coordinates = reduce(DataFrame.union, (events[topic].select(*COORDINATES) for topic in compiled.view.reads))
    numbers = F.min("offset").alias("first"), F.max("offset").alias("last"), F.count("*").alias("records")
    rows = coordinates.groupBy("topic", "partition").agg(*numbers).collect()
    return [_Span(r.topic, r.partition, r.first, r.last, r.records) for r in rows]


def _search(compiled: CompiledView, events: EventFrames, whole: _Span) -> Iterator[Excluded]:
    """Yield the bad records of a span. If the first half of a bad span is good, the second half needs no probe."""
    spans = [(whole, _failure(compiled, events, whole))] if whole.records else []
    while spans:
        span, reason = spans.pop()
        if span.first == span.last:
            reason = reason if reason != _INFERRED else _failure(compiled, events, span)
        if reason is None:
            continue
        if span.first == span.last:
            yield Excluded(span.topic, span.partition, span.first, reason)
            continue
        middle = (span.first + span.last) // 2
        left, right = replace(span, last=middle), replace(span, first=middle + 1)
        in_left = _failure(compiled, events, left)
        in_right = _INFERRED if in_left is None else _failure(compiled, events, right)
        spans += [(right, in_right), (left, in_left)]


def _failure(compiled: CompiledView, events: EventFrames, span: _Span) -> str | None:
    """The reason why the transform fails on the records in a span; None if it does not fail."""
    in_span = (F.col("topic") == span.topic) & (F.col("partition") == span.partition)
    in_span &= F.col("offset").between(span.first, span.last)
    spanned = {topic: frame.where(in_span) for topic, frame in events.items()}
    try:
        for table in compiled.sources:
            table.prepared(table.transformed(spanned)).write.format("noop").mode("overwrite").save()
    except FAILURES as error:
        if not is_value_error(error):
            raise
        return reason(error)
    return None
