"""An audience of hosts with sketches, as the merge stores them, for tests of the figures of cubes."""

from datetime import UTC, datetime, timedelta

from tests.builders.views import a_view, forget, merged_to
from tests.pages.plausible import HOSTILE
from truelog.log.positions import Positions
from truelog.storage.database import Connection

# The day before, so that the range does not end now.
BEGIN = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=26)
LONG = "https://shop.example/" + 8_000 * "a"
HOSTS = ("shop.example", None, HOSTILE[0], HOSTILE[4], "")
# Register n of a minute has the rank n % 7 + 1, and each host has further registers.
_FILLED = """
DROP VIEW views.page_audience CASCADE;
DROP TABLE state.page_audience_v1;
CREATE TABLE state.page_audience_v1 (minute timestamptz, host text COLLATE "C", views bigint, visitors integer[],
    response_ms bigint[], UNIQUE NULLS NOT DISTINCT (minute, host));
CREATE VIEW views.page_audience AS SELECT minute, host, views,
    truelog.distinct_estimate(visitors, 12) AS visitors, truelog.quantile(response_ms, 0.5, 6) AS response_ms_p50,
    truelog.quantile(response_ms, 0.95, 6) AS response_ms_p95, truelog.quantile(response_ms, 0.99, 6) AS response_ms_p99
    FROM state.page_audience_v1;
COMMENT ON COLUMN views.page_audience.visitors IS 'distinct visitors, with a relative standard error of 2 %';
"""
_ROWS = """
INSERT INTO state.page_audience_v1 SELECT %(begin)s + n * interval '1 minute', host, 10 + n %% 7 + place,
    (SELECT array_agg(64 * (40 * place + r) + (r + 1) %% 7 + 1 ORDER BY r) FROM generate_series(0, 80) r),
    ARRAY[place * 10, 3, 200 + n %% 9, 4, 300 + place::bigint, 1]
    FROM generate_series(0, %(minutes)s - 1) n, unnest(%(hosts)s::text[]) WITH ORDINALITY AS h(host, place)
"""


def fill_audience(
    connection: Connection, begin: datetime = BEGIN, minutes: int = 120, hosts: tuple[str | None, ...] = HOSTS
) -> None:
    """Readers then get the rows of the stream, because the view has no batch answer."""
    forget(connection, "page_audience")
    a_view(connection, "page_audience")
    merged_to(connection, "page_audience", Positions({"page_view": {0: 120_000, 1: 120_037}}, {"page_view": "id"}))
    for statement in _FILLED.strip().split(";\n"):
        connection.execute(statement.encode())
    connection.execute(_ROWS.encode(), {"begin": begin, "minutes": minutes, "hosts": list(hosts)})
    connection.execute("ANALYZE state.page_audience_v1")
