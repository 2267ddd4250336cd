"""The figures of a cube for 30 days, as the analytics page asks for them: the time of an answer.

The tables are made by a stream. Their rows are inserted, because a month of traffic would take an hour to send. The
period before has as many rows as the range.
"""

import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial

import psutil
from psycopg import sql

from bench.freshness import percentiles
from bench.row import OURS, Row
from tests.beat import first
from truelog.reports.cubes import analytics
from truelog.reports.cubes.cube import cube_names, find_cube
from truelog.reports.cubes.question import Question
from truelog.storage import db_snapshot
from truelog.storage.database import Connection, connect
from truelog.support.settings import Settings

VIEWS = ("page_views", "hourly_views", "page_audience", "visitor_sketches")
DAYS = 30

_ANSWERS = 40
_WARM = 3
_LOOK_SECONDS = 0.5
_PATIENCE_SECONDS = 180.0
# Twelve page views of each minute, on 4 hosts and 400 pages.
_PAGE_VIEWS = """
INSERT INTO {} (minute, host, page, browser, views, bytes)
SELECT %(end)s - m * interval '1 minute', 'shop' || (m + n) %% 4, '/product/' || (m * 7919 + n * 104729) %% 400,
    (ARRAY['Chrome', 'Edge', 'Firefox'])[1 + (m * 31 + n) %% 3], 1 + (m + n) %% 9, 1000 + (m * 37 + n) %% 90000
FROM generate_series(1, %(minutes)s::bigint) AS m, generate_series(1, 12) AS n ON CONFLICT DO NOTHING
"""
# The page views of an hour, and 240 visitors of each host and browser.
_HOURLY = """
INSERT INTO {} (hour, host, browser, views, bytes, visitors)
SELECT date_trunc('hour', %(end)s, 'UTC') - h * interval '1 hour', 'shop' || host, browser, 300, 1000000, (
    SELECT array_agg(64 * register + 1 + register %% 8 ORDER BY register) FROM (
        SELECT DISTINCT (h * 31 + host * 7 + length(browser) * 977 + n * n * 2711) %% 4096 AS register
        FROM generate_series(1, 240) AS n
    ) AS hashed
)
FROM generate_series(1, %(minutes)s::bigint / 60) AS h, generate_series(0, 3) AS host,
unnest(ARRAY['Chrome', 'Edge', 'Firefox']) AS browser ON CONFLICT DO NOTHING
"""
# Each minute and host has twelve visitors and response times.
_AUDIENCE = """
INSERT INTO {} (minute, host, views, visitors, response_ms)
SELECT %(end)s - m * interval '1 minute', 'shop' || host, 12, visitors, response_ms
FROM generate_series(1, %(minutes)s::bigint) AS m, generate_series(1, 4) AS host,
LATERAL (
    SELECT array_agg(64 * register + 1 + register %% 8 ORDER BY register) AS visitors
    FROM (SELECT DISTINCT (m * host * 31 + n * n * 2711) %% 4096 AS register FROM generate_series(1, 12) AS n) AS hashed
) AS seen,
LATERAL (
    SELECT array_agg(number ORDER BY bucket, place) AS response_ms
    FROM generate_series(1, 12) AS n, LATERAL (SELECT 400 + n * 12 + (m + host) %% 12 AS bucket) AS bucketed,
    LATERAL (VALUES (1, bucket), (2, 1)) AS pair(place, number)
) AS waited ON CONFLICT DO NOTHING
"""
# Each day has a row for all pages, with half of the registers, and a row for each of 400 pages.
_SKETCHES = """
INSERT INTO {} (day, page, views, visitors, response_ms)
SELECT date_trunc('day', %(end)s) - d * interval '1 day', page, registers,
    (SELECT array_agg(64 * n * step + 1 + (n + d) %% 8 ORDER BY n) FROM generate_series(0, registers - 1) AS n),
    (SELECT array_agg(v ORDER BY n, v DESC) FROM generate_series(1, 100) AS n, LATERAL (VALUES (400 + n), (1)) AS p(v))
FROM generate_series(0, %(minutes)s / 1440) AS d,
LATERAL (
    SELECT NULL AS page, 2048 AS registers, 2 AS step
    UNION ALL SELECT 'shop/product/' || n, 64, 60 FROM generate_series(1, 400) AS n
) AS pages ON CONFLICT DO NOTHING
"""
_FILLED = {
    "page_views": _PAGE_VIEWS,
    "hourly_views": _HOURLY,
    "page_audience": _AUDIENCE,
    "visitor_sketches": _SKETCHES,
}


def run(settings: Settings) -> Iterator[Row]:
    """A stream that runs the views must have been started."""
    end = datetime.now(UTC).replace(second=0, microsecond=0)
    with connect(settings, autocommit=True) as connection:
        for view, rows in _FILLED.items():
            first(_LOOK_SECONDS, partial(_exists, settings, connection, view), within=_PATIENCE_SECONDS, what=view)
            table = find_cube(settings, connection, view).table
            connection.execute(sql.SQL(rows).format(table), {"end": end, "minutes": 2 * DAYS * 24 * 60})
            connection.execute(sql.SQL("VACUUM ANALYZE {}").format(table))
    month, week = (timedelta(days=days) for days in (DAYS, 7))
    yield _row(settings, "page_views", Question(end - month, end))
    yield _row(settings, "page_views", Question(end - month, end, by="host"))
    yield _row(settings, "page_views", Question(end - month, end, by="page"))
    hour = end.replace(minute=0)
    # As the page reads figures of `page_views` over long ranges, and with visitors.
    for by in (None, "host", "browser"):
        yield _row(settings, "hourly_views", Question(hour - month, hour, by=by), figures=2)
    yield _row(settings, "hourly_views", Question(hour - week, hour, by="host", order="visitors"))
    yield _row(settings, "hourly_views", Question(hour - month, hour, by="host", order="visitors"))
    yield _row(settings, "page_audience", Question(end - month, end, by="host"))
    yield _row(settings, "page_audience", Question(end - week, end, by="host", order="visitors"))
    yield _row(settings, "visitor_sketches", Question(end - month, end, order="visitors"))


def _exists(settings: Settings, connection: Connection, view: str) -> bool:
    return view in cube_names(settings, connection)


def _row(settings: Settings, view: str, question: Question, figures: int | None = None) -> Row:
    """The time of answers with the first figures of the cube, or with all of them."""
    times, work = list[float](), 0.0
    for _ in range(_WARM + _ANSWERS):
        with db_snapshot.read_snapshot(settings) as connection:
            cube = find_cube(settings, connection, view)
            cube = replace(cube, figures=cube.figures[:figures])
            database = psutil.Process(connection.info.backend_pid)
            began, before = time.perf_counter(), sum(database.cpu_times()[:2])
            found = analytics.analyse(connection, cube, question)
            times.append(time.perf_counter() - began)
            work += sum(database.cpu_times()[:2]) - before
    ordered = sorted(times[_WARM:])
    by, order = question.by or "nothing", question.order or cube.figures[0].name
    more = {**percentiles(ordered), "rows": float(found.state_rows), "cpu_seconds": work / len(times)}
    note = f"{_ANSWERS} answers, one after the other"
    name = f"{order} of {view}, {question.span.days} days by {by}"
    return Row(name, OURS, _ANSWERS / sum(ordered), "alone", note, more=more)
