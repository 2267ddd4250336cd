"""Bad records: records on which a view's transform fails, found by bisection.

A transform should be total (`try_*` functions). If it is not, a single hostile record would stop the view forever
unless the record is excluded.
"""

from collections.abc import Callable, Sequence
from functools import reduce
from typing import TypeVar

from pyspark.errors import (
    ArithmeticException,
    ArrayIndexOutOfBoundsException,
    DateTimeException,
    IllegalArgumentException,
    NumberFormatException,
    PySparkException,
    SparkRuntimeException,
)
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from truelog.kernel.merge import Excluded
from truelog.log.records import EventFrames
from truelog.views.compiled_view import CompiledView

# Errors that a value can cause in an expression. A lost executor or a full disk raises a different error.
_VALUE_ERRORS = (
    ArithmeticException,
    ArrayIndexOutOfBoundsException,
    DateTimeException,
    IllegalArgumentException,
    NumberFormatException,
    SparkRuntimeException,
)
_COORDINATES = ("topic", "partition", "offset")
_MAX_BAD_RECORDS = 100  # more bad records in one batch mean broken code, not broken records

_T = TypeVar("_T")
Coordinates = tuple[str, int, int]  # topic, partition, offset
_Range = tuple[str, int, int, int]  # topic, partition, first offset, last offset


def exclude_and_retry(
    compiled: CompiledView, events: Callable[[], EventFrames], attempt: Callable[[Sequence[Excluded]], _T]
) -> _T:
    """Run `attempt`; if the transform fails on some events, run `attempt` again without these records.

    `attempt` receives the records to leave out, and none the first time. `events` is called only after a failure.

    Raises: the first error, if no single record causes it.
    """
    try:
        return attempt(())
    except PySparkException as error:
        return attempt(_find_bad_records(compiled, events(), error))


def _find_bad_records(compiled: CompiledView, events: EventFrames, error: PySparkException) -> list[Excluded]:
    """Find the records on which the transform fails; raise `error` if no single record causes it."""
    if not isinstance(error, _VALUE_ERRORS):
        raise error
    bad_records = [bad for span in _spans(compiled, events) for bad in _bisect(compiled, events, span, error)]
    if not bad_records:
        raise error
    return bad_records


def unfounded_exclusions(
    compiled: CompiledView, events: EventFrames, excluded: Sequence[Coordinates]
) -> list[Coordinates]:
    """The excluded coordinates where the transform does not fail or where there is no event."""
    return [(t, p, o) for t, p, o in excluded if _failure(compiled, events, (t, p, o, o)) is None]


def _spans(compiled: CompiledView, events: EventFrames) -> list[_Range]:
    """The first and last offsets of each partition."""
    coordinates = reduce(DataFrame.union, (events[topic].select(*_COORDINATES) for topic in compiled.view.reads))
    rows = coordinates.groupBy("topic", "partition").agg(F.min("offset").alias("first"), F.max("offset").alias("last"))
    return [(r.topic, r.partition, r.first, r.last) for r in rows.collect()]


def _bisect(compiled: CompiledView, events: EventFrames, span: _Range, error: PySparkException) -> list[Excluded]:
    """Bisect a range of offsets down to the single records on which the transform fails."""
    bad_records: list[Excluded] = []
    spans = [span]
    while spans:
        topic, partition, first, last = spans.pop()
        reason = _failure(compiled, events, (topic, partition, first, last))
        if reason is None:
            continue
        if first == last:
            bad_records.append(Excluded(topic, partition, first, reason))
            if len(bad_records) > _MAX_BAD_RECORDS:
                raise error
            continue
        middle = (first + last) // 2
        spans += [(topic, partition, middle + 1, last), (topic, partition, first, middle)]
    return bad_records


def _failure(compiled: CompiledView, events: EventFrames, span: _Range) -> str | None:
    """The reason why the transform fails on the records in a range; None if it does not fail."""
    topic, partition, first, last = span
    in_span = (F.col("topic") == topic) & (F.col("partition") == partition) & F.col("offset").between(first, last)
    rows = compiled.prepared(compiled.transformed({t: frame.where(in_span) for t, frame in events.items()}))
    try:
        rows.write.format("noop").mode("overwrite").save()
    except _VALUE_ERRORS as error:
        return f"{error.getCondition() or type(error).__name__}: {str(error).splitlines()[0][:500]}"
    return None
