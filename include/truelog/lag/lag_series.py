"""The course of lag: of one reader, by partition, in as many steps as a plot can show."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from truelog.storage.database import Connection

STEPS = 240


@dataclass(frozen=True)
class LagSeries:
    """The worst of each step; None where the poller saw nothing in it. `at` is shared by all series of one answer."""

    topic: str
    partition: int
    events: Sequence[int | None]
    seconds: Sequence[float | None]


@dataclass(frozen=True)
class LagCourse:
    """Moments in seconds since 1970, a step apart, and what was seen in each."""

    step: float
    at: Sequence[float]
    series: Sequence[LagSeries]


def lag_course(connection: Connection, reader: str, span: float, least: float) -> LagCourse:
    """Over the last `span` seconds, in steps of at least so many seconds: those between two polls."""
    step = max(least, span / STEPS)
    rows: list[tuple[Any, ...]] = connection.execute(_ASK, {"reader": reader, "span": span, "step": step}).fetchall()
    now = connection.execute("SELECT extract(epoch FROM now())::float8").fetchone()
    last = int(float(str(now[0])) // step) if now else 0
    begin = last - int(span // step)
    seen: dict[tuple[str, int], dict[int, tuple[int | None, float | None]]] = {}
    for number, topic, partition, events, seconds in rows:
        seen.setdefault((topic, partition), {})[number] = (events, seconds)
    numbers, nothing = range(begin, last + 1), (None, None)
    return LagCourse(
        step,
        [number * step for number in numbers],
        [
            LagSeries(*place, [at.get(n, nothing)[0] for n in numbers], [at.get(n, nothing)[1] for n in numbers])
            for place, at in sorted(seen.items())
        ],
    )


_ASK = """
    SELECT floor(extract(epoch FROM at) / %(step)s::numeric)::bigint AS number, p.topic, p.partition,
        max(greatest(p."end" - p.position, 0)) FILTER (WHERE p.blind = ''),
        max(p.seconds) FILTER (WHERE p.blind = '')
    FROM truelog.lag_sample, jsonb_to_recordset(partitions)
        AS p(topic text, partition integer, position bigint, "end" bigint, seconds float8, blind text)
    WHERE reader = %(reader)s AND at > now() - make_interval(secs => %(span)s) AND at <= now()
    GROUP BY 1, 2, 3
"""
