"""One reader's lag over time, in total and by partition, divided into as many steps as a chart can show."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from truelog.lag.time_steps import TimeRange, step_numbers
from truelog.storage.database import Connection

STEPS = 240
_NO_SAMPLE = (None,) * 4


@dataclass(frozen=True)
class LagCourse:
    """The highest lag in each step, and the records per second that arrived and that were processed.

    A step without a sample has None. A rate also needs a sample in the step before.
    """

    events: Sequence[int | None]
    seconds: Sequence[float | None]
    rate_in: Sequence[float | None]
    rate_out: Sequence[float | None]


@dataclass(frozen=True)
class PartitionCourse:
    topic: str
    partition: int
    course: LagCourse


@dataclass(frozen=True)
class LagTimeline:
    """The step length in seconds, the start of each step in seconds since 1970, and the courses.

    If one partition is unknown in a step, the total is unknown: the others would give a value that is too low.
    """

    step: float
    at: Sequence[float]
    total: LagCourse
    partitions: Sequence[PartitionCourse]


def lag_timeline(connection: Connection, reader: str, span: TimeRange, least: float) -> LagTimeline:
    """The lag over a time range. A step lasts at least `least` seconds, the interval between two polls."""
    step = max(least, span.seconds / STEPS)
    given = {"reader": reader, "span": span.seconds, "until": span.until, "step": step}
    rows = connection.execute(_QUERY, given).fetchall()
    samples: dict[tuple[str, int], dict[int, tuple[Any, ...]]] = {}
    for number, topic, partition, *sample in rows:
        samples.setdefault((topic, partition), {})[number] = tuple(sample)
    numbers = step_numbers(connection, span, step)
    courses = [
        PartitionCourse(*at, _course([by.get(n, _NO_SAMPLE) for n in numbers], step))
        for at, by in sorted(samples.items())
    ]
    return LagTimeline(step, [number * step for number in numbers], _total([each.course for each in courses]), courses)


def _course(samples: Sequence[tuple[Any, ...]], step: float) -> LagCourse:
    events, seconds, ends, positions = zip(*samples, strict=True)
    return LagCourse(events, seconds, _rates(ends, step), _rates(positions, step))


def _total(courses: Sequence[LagCourse]) -> LagCourse:
    def combined(values: Iterable[Sequence[float | None]], combine: Callable[..., Any]) -> list[Any]:
        return [None if None in step else combine(step) for step in zip(*values, strict=True)]

    return LagCourse(
        combined((each.events for each in courses), sum),
        combined((each.seconds for each in courses), max),
        combined((each.rate_in for each in courses), sum),
        combined((each.rate_out for each in courses), sum),
    )


def _rates(offsets: Sequence[int | None], step: float) -> list[float | None]:
    """The growth per second from each step to the next. A position that moved back has no rate."""
    pairs = pairwise(offsets)
    return [None, *(None if a is None or b is None or b < a else (b - a) / step for a, b in pairs)]


_QUERY = """
    SELECT floor(extract(epoch FROM at) / %(step)s::numeric)::bigint AS number, p.topic, p.partition,
        max(greatest(p."end" - p.position, 0)) FILTER (WHERE p.blind = ''),
        max(p.seconds) FILTER (WHERE p.blind = ''),
        max(p."end") FILTER (WHERE p.blind = ''), max(p.position) FILTER (WHERE p.blind = '')
    FROM truelog.lag_sample, jsonb_to_recordset(partitions)
        AS p(topic text, partition integer, position bigint, "end" bigint, seconds float8, blind text)
    WHERE reader = %(reader)s AND at > coalesce(%(until)s, now()) - make_interval(secs => %(span)s)
        AND at <= coalesce(%(until)s, now())
    GROUP BY 1, 2, 3
"""
