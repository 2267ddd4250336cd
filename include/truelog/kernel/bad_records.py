"""Poison: records on which a view's transform fails, found by halving.

A transform should be total (`try_*` functions); where it is not, one hostile record would stop the view for ever.
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
from truelog.views.compiled_view import Compiled

# What a value can do to an expression. Lost executors and full disks are none of these, and blame no record.
_OF_VALUES = (
    ArithmeticException,
    ArrayIndexOutOfBoundsException,
    DateTimeException,
    IllegalArgumentException,
    NumberFormatException,
    SparkRuntimeException,
)
_COORDINATES = ("topic", "partition", "offset")
_AT_MOST = 100  # more than this in one batch is broken code, not a broken record

_T = TypeVar("_T")
Coordinates = tuple[str, int, int]  # topic, partition, offset
_Range = tuple[str, int, int, int]  # topic, partition, first offset, last offset


def exclude_and_retry(
    compiled: Compiled, events: Callable[[], EventFrames], attempt: Callable[[Sequence[Excluded]], _T]
) -> _T:
    """Run `attempt`; if the transform fails on some of the events, run it again without these records.

    `attempt` takes the records to leave out, none at first. `events` is called only after a failure.

    Raises: the first error, if no single record causes it.
    """
    try:
        return attempt(())
    except PySparkException as error:
        return attempt(find_bad_records(compiled, events(), error))


def find_bad_records(compiled: Compiled, events: EventFrames, error: PySparkException) -> list[Excluded]:
    """The records that make the transform fail; re-raises `error` where no single record is to blame."""
    if not isinstance(error, _OF_VALUES):
        raise error
    found = [bad for span in _spans(compiled, events) for bad in _within(compiled, events, span, error)]
    if not found:
        raise error
    return found


def unfounded_exclusions(compiled: Compiled, events: EventFrames, places: Sequence[Coordinates]) -> list[Coordinates]:
    """Those of the places at which the transform fails on no record, or there is none that it is given."""
    return [(t, p, o) for t, p, o in places if _failure(compiled, events, (t, p, o, o)) is None]


def _spans(compiled: Compiled, events: EventFrames) -> list[_Range]:
    """First and last offset of each partition."""
    places = reduce(DataFrame.union, (events[topic].select(*_COORDINATES) for topic in compiled.view.reads))
    rows = places.groupBy("topic", "partition").agg(F.min("offset").alias("first"), F.max("offset").alias("last"))
    return [(r.topic, r.partition, r.first, r.last) for r in rows.collect()]


def _within(compiled: Compiled, events: EventFrames, span: _Range, error: PySparkException) -> list[Excluded]:
    found: list[Excluded] = []
    waiting = [span]
    while waiting:
        topic, partition, first, last = waiting.pop()
        reason = _failure(compiled, events, (topic, partition, first, last))
        if reason is None:
            continue
        if first == last:
            found.append(Excluded(topic, partition, first, reason))
            if len(found) > _AT_MOST:
                raise error
            continue
        middle = (first + last) // 2
        waiting += [(topic, partition, middle + 1, last), (topic, partition, first, middle)]
    return found


def _failure(compiled: Compiled, events: EventFrames, span: _Range) -> str | None:
    """Why the transform fails on the records of a range; None where it takes them."""
    topic, partition, first, last = span
    here = (F.col("topic") == topic) & (F.col("partition") == partition) & F.col("offset").between(first, last)
    rows = compiled.prepared(compiled.transformed({t: frame.where(here) for t, frame in events.items()}))
    try:
        rows.write.format("noop").mode("overwrite").save()
    except _OF_VALUES as failed:
        return f"{failed.getCondition() or type(failed).__name__}: {str(failed).splitlines()[0][:500]}"
    return None
