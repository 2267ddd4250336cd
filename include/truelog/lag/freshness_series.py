"""The freshness of several readers over time, so that a chart can compare them."""

from collections.abc import Sequence
from dataclasses import dataclass

from truelog.lag.time_steps import TimeRange, step_numbers
from truelog.storage.database import Connection

STEPS = 120
MOST_READERS = 8  # lines that a chart can show in different colours


@dataclass(frozen=True)
class FreshnessSeries:
    """A reader's freshness in seconds at the last sample of each step. None: no sample, or an unknown partition."""

    reader: str
    seconds: Sequence[float | None]


@dataclass(frozen=True)
class FreshnessTimeline:
    """The step length in seconds, the start of each step in seconds since 1970, and all readers with samples."""

    step: float
    at: Sequence[float]
    series: Sequence[FreshnessSeries]
    readers: Sequence[str]


def freshness_timeline(
    connection: Connection, chosen: Sequence[str], span: TimeRange, least: float, known: Sequence[str]
) -> FreshnessTimeline:
    """The freshness of the chosen of the known readers; by default of the readers that are the furthest behind.

    A step lasts at least `least` seconds, the interval between two polls.
    """
    step = max(least, span.seconds / STEPS)
    given = {"readers": list(known), "span": span.seconds, "until": span.until, "step": step}
    newest = connection.execute(_NEWEST, given).fetchall()
    shown = [each for each in chosen if each in known] or [reader for reader, _ in newest[:MOST_READERS]]
    found: dict[tuple[str, int], float | None] = {}
    for reader, number, seconds in connection.execute(_COURSE, given | {"readers": shown}).fetchall():
        found[reader, number] = seconds
    numbers = step_numbers(connection, span, step)
    return FreshnessTimeline(
        step,
        [number * step for number in numbers],
        [FreshnessSeries(reader, [found.get((reader, number)) for number in numbers]) for reader in shown],
        [reader for reader, _ in newest],
    )


_SECONDS = """
    (SELECT CASE WHEN count(*) FILTER (WHERE p.blind <> '' OR p.seconds IS NULL) = 0 THEN max(p.seconds) END
        FROM jsonb_to_recordset(s.partitions) AS p(seconds float8, blind text))
"""
_NEWEST = f"""
    SELECT reader, {_SECONDS} AS seconds FROM unnest(%(readers)s::text[]) AS reader, LATERAL (
        SELECT partitions FROM truelog.lag_sample WHERE lag_sample.reader = reader.reader
            AND at > coalesce(%(until)s, now()) - make_interval(secs => %(span)s)
            AND at <= coalesce(%(until)s, now()) ORDER BY at DESC LIMIT 1
    ) s ORDER BY seconds DESC NULLS FIRST, reader
"""  # noqa: S608  constants
_COURSE = f"""
    SELECT s.reader, last.number, {_SECONDS} FROM (
        SELECT reader, floor(extract(epoch FROM at) / %(step)s::numeric)::bigint AS number, max(at) AS at
        FROM truelog.lag_sample WHERE reader = ANY(%(readers)s::text[])
            AND at > coalesce(%(until)s, now()) - make_interval(secs => %(span)s)
            AND at <= coalesce(%(until)s, now())
        GROUP BY 1, 2
    ) last JOIN truelog.lag_sample s USING (reader, at)
"""  # noqa: S608  constants
