"""One reader's lag over time, by partition, divided into as many steps as a chart can show."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from truelog.storage.database import Connection

STEPS = 240


@dataclass(frozen=True)
class LagSeries:
    """The highest lag of one partition in each step, or None for a step without a sample."""

    topic: str
    partition: int
    events: Sequence[int | None]
    seconds: Sequence[float | None]


@dataclass(frozen=True)
class LagTimeline:
    """The step length in seconds, the start of each step in seconds since 1970, and the series of all partitions."""

    step: float
    at: Sequence[float]
    series: Sequence[LagSeries]


def lag_timeline(connection: Connection, reader: str, span: float, least: float) -> LagTimeline:
    """The lag over the last `span` seconds. A step lasts at least `least` seconds, the interval between two polls."""
    step = max(least, span / STEPS)
    rows: list[tuple[Any, ...]] = connection.execute(_QUERY, {"reader": reader, "span": span, "step": step}).fetchall()
    now = connection.execute("SELECT extract(epoch FROM now())::float8").fetchone()
    last = int(float(str(now[0])) // step) if now else 0
    first = last - int(span // step)
    lags: dict[tuple[str, int], dict[int, tuple[int | None, float | None]]] = {}
    for number, topic, partition, events, seconds in rows:
        lags.setdefault((topic, partition), {})[number] = (events, seconds)
    numbers, nothing = range(first, last + 1), (None, None)
    return LagTimeline(
        step,
        [number * step for number in numbers],
        [
            LagSeries(*partition, [by.get(n, nothing)[0] for n in numbers], [by.get(n, nothing)[1] for n in numbers])
            for partition, by in sorted(lags.items())
        ],
    )


_QUERY = """
    SELECT floor(extract(epoch FROM at) / %(step)s::numeric)::bigint AS number, p.topic, p.partition,
        max(greatest(p."end" - p.position, 0)) FILTER (WHERE p.blind = ''),
        max(p.seconds) FILTER (WHERE p.blind = '')
    FROM truelog.lag_sample, jsonb_to_recordset(partitions)
        AS p(topic text, partition integer, position bigint, "end" bigint, seconds float8, blind text)
    WHERE reader = %(reader)s AND at > now() - make_interval(secs => %(span)s) AND at <= now()
    GROUP BY 1, 2, 3
"""
