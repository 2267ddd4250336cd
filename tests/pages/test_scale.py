"""What each data answer reads on a large platform: 50 views, 200 partitions and 10,000 reconciliations.

Queries and rows are bounded. The summary of the tests shows the times. Pages read the lag samples of ten minutes.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from psycopg import sql

from runtime import airflow
from tests.pages.cost import counted
from tests.servers import SharedServers, copy_database, drop_database
from tests.speed import record_speed
from truelog.monitor import record_report
from truelog.monitor.record_report import Place
from truelog.serving import row_query
from truelog.serving.row_query import Condition, RowQuery
from truelog.storage import db_snapshot
from truelog.storage.database import connect
from truelog.support.settings import PROJECT, Settings
from truelog.views.catalogue import VIEWS

NAME = "pages_large"
COPIES, HTTP_ROUNDS = 50, 4
TODAY = datetime.now(UTC).date()
FILLED = """
INSERT INTO truelog.view (view, version, fingerprint, spark, made_at, reads)
    SELECT 'v' || n, 1, '', '', now() - interval '90 days', '{page_view}' FROM generate_series(1, 50) n;
INSERT INTO truelog.position SELECT 'v' || n, 1, 'page_view', p, 'id', 100000
    FROM generate_series(1, 50) n, generate_series(0, 199) p;
INSERT INTO truelog.reconciliation (view, version, positions, from_raw, row_count, missing, extra, different, repaired,
    verdict, reason, sample, run, finished_at)
    SELECT 'v' || n % 50 + 1, 1, (SELECT jsonb_build_object('page_view', jsonb_object_agg(p, 100000))
        FROM generate_series(0, 199) p), false, 1000, 0, 0, n % 100 / 99, 0,
        CASE n % 100 WHEN 99 THEN 'DIFFERENT' WHEN 50 THEN 'UNKNOWN' ELSE 'EQUAL' END, '', '[]',
        'scheduled__' || n / 50, now() - n * interval '1 minute' FROM generate_series(1, 10000) n;
INSERT INTO truelog.validation (reconciliation, success, failed, result)
    SELECT id, true, '{}', '{}' FROM truelog.reconciliation;
INSERT INTO truelog.certificate (id, view, version, reconciliation, positions, fingerprint, row_count, digest, object,
    made_at) SELECT view || '-' || id, view, 1, id, positions, '', 1000, '', '', finished_at
    FROM truelog.reconciliation WHERE verdict = 'EQUAL';
INSERT INTO truelog.recomputation (attempt, view, day, state)
    SELECT 'a' || d, 'v' || n, date_trunc('day', now()) - d * interval '1 day', 'done'
    FROM generate_series(1, 50) n, generate_series(0, 90) d;
CREATE TABLE state.v1_v1 (minute timestamptz, host text, page text, browser text, views bigint,
    UNIQUE NULLS NOT DISTINCT (minute, host, page, browser));
INSERT INTO state.v1_v1 SELECT now() - n * interval '1 second', 'h' || n % 50, '/' || n % 7, 'b', n
    FROM generate_series(1, 500000) n;
CREATE VIEW views.v1 AS SELECT * FROM state.v1_v1;
INSERT INTO truelog.lag_sample (reader, version, at, batch_at, partitions, verdicts)
    SELECT 'v' || n, 1, now() - poll * interval '10 seconds', now(), (SELECT jsonb_agg(jsonb_build_object(
        'topic', 'page_view', 'partition', p, 'position', 99000 + n, 'earliest', 0, 'end', 100000, 'seconds', n,
        'topic_id', 'id', 'blind', '')) FROM generate_series(0, 199) p),
        (SELECT jsonb_agg('{"verdict": "OK", "rule": 12, "reason": ""}'::jsonb) FROM generate_series(0, 199))
    FROM generate_series(1, 50) n, generate_series(0, 59) poll;
ANALYZE;
"""
# Each answer over HTTP, with the largest number of queries and of rows that it may read. Records, explanations, dead
# letters and exports are left out, because they also read the archive.
HTTP: dict[str, tuple[int, int]] = {
    "data/vitals": (28, 500),
    "data/streams": (28, 300),
    "data/views": (12, 300),
    "data/view?name=v1": (18, 300),
    "data/rows?name=v1": (11, 100),
    "data/rows?name=v1&where=host%3Dh1&order=views": (11, 100),
    "data/reconciliations": (7, 120),
    "data/reconciliations?verdict=DIFFERENT&text=v&order=different": (7, 120),
    "data/reconciliations?run=scheduled__7": (11, 120),
    "data/reconciliation?id=5000": (8, 120),
    "data/certificates": (9, 120),
    "data/certificates?view=v1": (10, 200),
    f"data/partials?since={TODAY - timedelta(days=90)}&until={TODAY}": (6, 5_000),
    "data/backfills": (120, 500),  # Airflow's own database may have a page of backfills, each with its days
    "data/lag?reader=v1": (9, 600),
    "data/freshness": (9, 120),
    "data/alerts": (16, 120),
    "data/timeline?hours=744": (6, 250),
    "data/operations": (6, 120),
    "data/quality": (7, 120),
    "data/skipped": (7, 120),
    "data/explain?view=v1&where=host%3Dh1": (8, 120),
}


@pytest.fixture(scope="module")
def large(servers: SharedServers, postgresql: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    folder = tmp_path_factory.mktemp("large") / "views"
    folder.mkdir()
    for number in range(1, COPIES + 1):
        shutil.copy(VIEWS / "page_views.py", folder / f"v{number}.py")
    copy_database(postgresql, servers.settings.database_name, NAME)
    settings = postgresql.model_copy(update={"database_name": NAME, "views_folder": folder})
    with connect(settings, autocommit=True) as connection:
        for statement in FILLED.strip().split(";\n"):
            connection.execute(statement.encode())
    yield settings
    drop_database(postgresql, NAME)


def test_the_readers_of_a_record_are_found_with_few_queries(large: Settings) -> None:
    """The page of a record also reads the archive, so it is not among the answers over HTTP."""
    with counted() as cost:
        found = record_report.record_readers(large, Place("page_view", 199, 5))
    assert len(found) == COPIES
    assert cost["queries"] <= 6
    assert cost["rows"] <= 3 * COPIES


def test_each_answer_over_http_reads_little(large: Settings, pages: Settings) -> None:
    """`pages` sets up Airflow's own database, which some answers read, too."""
    command = [sys.executable, "-m", "tests.pages.asgi_answers", str(HTTP_ROUNDS + 1), *HTTP]
    ours = {"TRUELOG_DATABASE_NAME": NAME, "TRUELOG_VIEWS_FOLDER": str(large.views_folder)}
    ended = subprocess.run(
        command, cwd=PROJECT, env=airflow.environment(pages) | ours, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr[-2000:]
    found = [json.loads(line) for line in ended.stdout.splitlines() if line.startswith('{"path"')]
    for each in found:  # the first round loads the files of the views
        record_speed(f"slowest of {HTTP_ROUNDS} answers of {each['path']}", 1_000 * max(each["seconds"][1:]), "ms")
    assert {each["path"]: each["status"] for each in found} == dict.fromkeys(HTTP, 200)
    cost = {each["path"]: (each.get("queries", 0), each.get("rows", 0)) for each in found}
    assert {path: read for path, read in cost.items() if read[0] > HTTP[path][0] or read[1] > HTTP[path][1]} == {}


def test_a_row_is_found_by_an_index(large: Settings) -> None:
    conditions = [Condition.parse(each) for each in ("minute=2026-01-01", "host=h1", "page=/1", "browser=b")]
    with db_snapshot.read_snapshot(large) as connection:
        for query in (RowQuery("v1", conditions), RowQuery("v1", order="minute")):
            statement = row_query.select(connection, replace(query, limit=50), sql.SQL("{}"))
            plan = " ".join(str(line) for (line,) in connection.execute(sql.SQL("EXPLAIN ") + statement))
            assert "Index" in plan
            assert "Seq Scan" not in plan
